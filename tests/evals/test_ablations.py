"""Whether taking an ingredient out of a search takes anything out of it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from benchmarks.ablations import ABLATIONS
from benchmarks.collections import Document
from benchmarks.evaluation import store
from openmemory.identity.caller import Caller
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services

SAID = """
Mel: I went to the pottery class again
Mel: They had me throw a bowl on the wheel
Mel: Which glaze did you take in the end
Mel: A deep blue one, like the sea
Mel: My brother moved to Porto last year
Mel: He repairs old boats there
Mel: The train to the coast was late again
Mel: We saw dolphins from the pier
Mel: The sunset painting hangs in the kitchen
Mel: I painted it after the storm, a red sunset
Mel: The dog needs a new collar
Mel: He pulled so hard that the old one broke
Mel: I read a novel about a lighthouse keeper
Brightwater Glass has its kilns in Ohio
Mel: The ending was sad but right
Mel: My knee hurts when I run downhill
Mel: The doctor said to swim instead
Mel: Our choir sings in the old church
Mel: The concert is on the first Sunday of June
Mel: I planted tomatoes and basil on the balcony
Mel: The basil did not survive the frost
Mel: The car failed its inspection
Mel: New brakes cost four hundred
Mel: The neighbours have a parrot that swears
Mel: It learned that from their grandfather
Mel: My cousin was hired by Brightwater Glass
"""
LONG = "\n".join([*(f"On page {n} the report tells of budgets, staff and rooms." for n in range(40)),
                  "The vault is opened with the copper key under the third step."])  # fmt: skip
ASKED = (
    "What glaze did Mel take for the bowl?",
    "What did Mel paint after the storm?",
    "Where does the brother of Mel live?",
    "red sunset painting",
    "What about the dog in May 2023?",
    "dolhpins and tomatoes",
    "how do I get into the strongroom",
    "quantum chromodynamics of gluons",
    "swimming instead of running",
    "Who hired the cousin of the kilns?",
)


@pytest.fixture
async def caller(services: Services, owner: Caller) -> Caller:
    first = datetime(2023, 4, 20, tzinfo=UTC)
    lines = SAID.strip().splitlines()
    documents = [
        Document(str(at), line, "default", "talk", first + at * timedelta(days=1)) for at, line in enumerate(lines)
    ]
    await store(services, owner, [*documents, Document("long", LONG, "default", None, first)])
    return owner


async def test_each_ablation_takes_something_out(services: Services, caller: Caller) -> None:
    async def answers() -> list[object]:
        found = [await services.search.search(caller, SearchQuery(text)) for text in ASKED]
        return [[(result.id, round(result.score, 9)) for result in answer.results] for answer in found]

    whole = await answers()
    assert await answers() == whole
    same = []
    for name, without in ABLATIONS.items():
        with without():
            if await answers() == whole:
                same.append(name)
    assert same == []
    assert await answers() == whole

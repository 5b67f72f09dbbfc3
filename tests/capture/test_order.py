"""The order in which texts are read, and what an earlier statement may do to a later one."""

from __future__ import annotations

import json
import random
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from sqlalchemy import text

from openmemory.capture import worker
from openmemory.capture.schemas import CaptureCreate
from openmemory.capture.status import Status
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import Event, MemoryCreate, MemoryQuery, MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services
from tests.capture.conftest import Done, Say, SetPauses, does, numbers, operation
from tests.llm.server import Answer, LlmServer, says

pytestmark = pytest.mark.usefixtures("soon")

PORTO, LISBON = "Dan lives in Porto.", "Dan lives in Lisbon."
Remembered = Callable[..., Awaitable[Any]]


def at(year: int) -> datetime:
    return datetime(year, 5, 1, tzinfo=UTC)


def said(asked: dict[str, Any]) -> str:
    """The text that a question is about."""
    block = re.search(r"<said-(\w+)>\n(.*)\n</said-\1>", asked["messages"][1]["content"], re.DOTALL)
    assert block is not None
    return str(json.loads(block[2]))


def latest_wins(asked: dict[str, Any]) -> Answer:
    """A model that believes the text that it reads, whatever is remembered."""
    shown = [number for memory, number in numbers(asked).items() if memory.startswith("Dan lives")]
    found = operation("SUPERSEDE", id=shown[0], text=said(asked)) if shown else operation("ADD", text=said(asked))
    return says({"operations": [found]})


async def memories(services: Services, caller: Caller, state: State = State.ACTIVE) -> list[str]:
    found = await services.memories.list(caller, MemoryQuery(size=100, states=(state,)))
    return sorted(record.content for record in found.items)


@pytest.mark.slow
async def test_a_text_that_waited_is_read_before_a_newer_one(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done, pauses: SetPauses
) -> None:
    pauses(first=600, last=600)
    model.script = lambda _: Answer("away", status=503)
    first = await say(LISBON)
    asked = len(model.asked)
    model.script = latest_wins
    second = await inferring.captures.add(claude, CaptureCreate(MemoryCreate(text=PORTO), wait=False))
    await done(second)

    assert [said(each) for each in model.asked[asked:]] == [LISBON, PORTO]
    assert await memories(inferring, claude) == [PORTO]
    assert (await inferring.captures.outcome(claude, first.capture_id)).status is Status.DONE


async def test_texts_of_a_namespace_share_one_pause_and_those_of_another_do_not(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, done: Done, pauses: SetPauses
) -> None:
    pauses(first=600, last=600)
    model.script = lambda asked: says({"operations": []}) if "garden" in said(asked) else Answer("no", status=503)
    first = await say(LISBON)
    async with inferring.database.transaction() as tx:
        later = "INSERT INTO captures (user_id, app_id, namespace, input, principal, hash) SELECT user_id, app_id,"
        later += " namespace, '{\"text\": \"later\"}', principal, 'x' FROM captures WHERE id = :id RETURNING id"
        behind = await tx.scalar(text(later), {"id": first.capture_id})
    await done(await say("The garden is large.", namespace="garden"))

    view = await inferring.captures.get(claude, behind)
    assert (view.status, view.attempts) == (Status.PENDING, 0)


@pytest.mark.parametrize(
    ("op", "active", "archived", "refused"),
    [
        ("SUPERSEDE", [PORTO], [LISBON], []),
        ("UPDATE", [LISBON, PORTO], [], []),
        ("DELETE", [PORTO], [], ["said_later"]),
    ],
)
async def test_an_earlier_statement_changes_no_later_one(
    inferring: Services, model: LlmServer, self_: Caller, say: Say, remembered: Remembered,
    op: str, active: list[str], archived: list[str], refused: list[str],
) -> None:  # fmt: skip
    porto = await remembered(PORTO)
    model.script = lambda asked: says({"operations": [operation(op, id=numbers(asked)[PORTO], text=LISBON)]})
    outcome = await say(LISBON, created_at=at(2020))

    assert await memories(inferring, self_) == active
    assert await memories(inferring, self_, State.ARCHIVED) == archived
    assert [each.reason for each in outcome.refused] == refused
    if archived:
        [old] = outcome.results
        assert old.event is Event.ADD
        view = await inferring.memories.get(self_, old.id)
        assert view.created_at.replace(tzinfo=UTC) == at(2020)
        async with inferring.database.statement() as tx:
            by = await tx.scalar(text("SELECT superseded_by FROM memories WHERE id = :id"), {"id": old.id})
        assert by == porto
    await inferring.captures.undo(self_, outcome.capture_id)
    assert await memories(inferring, self_) == [PORTO]
    assert await memories(inferring, self_, State.ARCHIVED) == []


async def test_a_memory_that_a_late_reading_changed_bears_the_time_of_the_text(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, remembered: Remembered
) -> None:
    await remembered("Dan lives somewhere.", created_at=at(2020))
    model.script = does(operation("UPDATE", id=1, text=LISBON))
    await say(LISBON, created_at=at(2021))
    model.script = latest_wins
    await say(PORTO, created_at=at(2022))
    assert await memories(inferring, claude) == [PORTO]


async def test_a_change_of_metadata_makes_no_statement_later(
    inferring: Services, model: LlmServer, claude: Caller, say: Say, remembered: Remembered
) -> None:
    lisbon = await remembered(LISBON, created_at=at(2020))
    await inferring.memories.update(claude, lisbon, MemoryUpdate(metadata={"seen": True}))
    model.script = latest_wins
    await say(PORTO, created_at=at(2021))
    assert await memories(inferring, claude) == [PORTO]


async def test_the_model_is_told_when_everything_was_said(model: LlmServer, say: Say, remembered: Remembered) -> None:
    await remembered(LISBON, created_at=at(2020))
    await say(PORTO, created_at=at(2021))
    asked = model.asked[0]["messages"][1]["content"]
    assert f"1. {json.dumps(LISBON)} (2020-05-01 00:00)" in asked
    assert "Date: Saturday, 2021-05-01 00:00" in asked


@pytest.mark.slow
async def test_several_processes_and_a_model_that_fails_now_and_then_keep_the_order(
    inferring: Services, model: LlmServer, claude: Caller, eventually: Any
) -> None:
    luck, read = random.Random(7), defaultdict[str, list[int]](list)

    def answer(asked: dict[str, Any]) -> Answer:
        group, number = said(asked).split()
        if luck.random() < 0.2:
            return Answer("busy", status=429)
        read[group].append(int(number))
        return says({"operations": []}, delay=luck.random() / 50)

    model.script = answer
    another = worker.Worker(
        inferring.database, inferring.capturing.extractor, inferring.outbox_delivery, intake=inferring.memories.intake,
        analyze_after_writes=inferring.analyze_after_writes, settings=inferring.settings,
    )  # fmt: skip
    another.pauses = inferring.capturing.pauses
    another.start()
    try:
        outcomes = []
        for number in range(6):
            for group in ("red", "green", "blue"):
                new = CaptureCreate(MemoryCreate(text=f"{group} {number}", namespace=group), wait=False)
                outcomes.append(await inferring.captures.add(claude, new))
                another.wake()

        async def all_done() -> bool:
            found = [await inferring.captures.outcome(claude, each.capture_id) for each in outcomes]
            return all(each.status is Status.DONE for each in found)

        await eventually(all_done, within=40)
    finally:
        await another.stop()
    assert read == {group: list(range(6)) for group in ("red", "green", "blue")}


async def test_what_was_said_is_the_time_of_new_memories(
    inferring: Services, model: LlmServer, claude: Caller, say: Say
) -> None:
    model.script = does(operation("ADD", text=PORTO))
    outcome = await say(PORTO)
    async with inferring.database.statement() as tx:
        same = "SELECT m.created_at = c.created_at FROM captures AS c, memories AS m WHERE c.id = :c AND m.id = :m"
        assert await tx.scalar(text(same), {"c": outcome.capture_id, "m": outcome.results[0].id})

"""The service while the embedder, a server with OpenAI's protocol, refuses, hangs, fails or changes its vectors."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from openmemory.embeddings.chance import texts as background_texts
from tests.clusters import furnish
from tests.faults.embedding_server import EmbeddingServer
from tests.faults.outage import NO_EMBEDDER, Outage
from tests.faults.proxy import Mode, Proxy
from tests.faults.qdrant import Qdrant
from tests.journeys.service import Service, short_parent

pytestmark = [pytest.mark.journey, pytest.mark.timeout(240)]

TIMEOUT = 1.0
"""Seconds that a query may wait for its vector: `embedder.timeout`."""

DIMENSION = 48


class Stack:
    """A service whose embedder is behind a proxy, and whose Qdrant is not."""

    def __init__(self, folder: Path) -> None:
        self.qdrant = Qdrant(folder / "qdrant" / "data")
        self.qdrant.start()
        self.embedder = EmbeddingServer(DIMENSION)
        self.proxy = Proxy(self.embedder.port)
        self.service = Service(
            "--data-dir", str(furnish(folder / "data")), "--port", "0",
            OPENMEMORY_QDRANT_URL=self.qdrant.url,
            OPENMEMORY_EMBEDDER_PROVIDER="openai", OPENMEMORY_EMBEDDER_API_KEY="none",
            OPENMEMORY_EMBEDDER_BASE_URL=f"{self.proxy.url}/v1", OPENMEMORY_EMBEDDER_TIMEOUT=str(TIMEOUT),
        )  # fmt: skip
        self.url = self.service.ready()

    def close(self) -> None:
        self.service.close()
        self.proxy.close()
        self.embedder.close()
        self.qdrant.stop()


@pytest.fixture(scope="module")
def started() -> Iterator[Stack]:
    with short_parent() as parent, closing(Stack(parent)) as stack:
        yield stack


@pytest.fixture
def stack(started: Stack) -> Iterator[Stack]:
    """The running stack, with what a test did to its embedder undone."""
    yield started
    started.proxy.set(Mode.PASS)
    started.embedder.dimension = DIMENSION
    httpx.post(f"{started.url}/api/v1/sync", timeout=60)  # a failed test must not fail the next one


@pytest.mark.parametrize(
    ("mode", "seconds"),
    [
        (Mode.REFUSE, 0.0),
        pytest.param(Mode.HANG, 0.0, marks=pytest.mark.slow),
        pytest.param(Mode.SLOW, 2 * TIMEOUT, marks=pytest.mark.slow),
        pytest.param(Mode.ERROR_500, 0.0, marks=pytest.mark.slow),
        pytest.param(Mode.GARBAGE, 0.0, marks=pytest.mark.slow),
        pytest.param(Mode.CUT, 0.0, marks=pytest.mark.slow),
    ],
)
def test_without_the_embedder_the_words_answer_and_nothing_is_lost(
    stack: Stack, outage: Outage, mode: Mode, seconds: float
) -> None:
    before = stack.proxy.faulted
    stack.proxy.set(mode, seconds)
    outage.degraded(NO_EMBEDDER, times=8, each=3 * TIMEOUT, quickly=TIMEOUT / 2)
    outage.change()
    outage.degraded(NO_EMBEDDER, times=4, each=3 * TIMEOUT, quickly=TIMEOUT / 2)

    stack.proxy.set(Mode.PASS)
    outage.report(f"embedder {mode}", stack.proxy.faulted - before, outage.whole())


@pytest.mark.slow
def test_vectors_of_another_dimension_are_not_stored_and_the_words_answer(stack: Stack, outage: Outage) -> None:
    before = len(stack.embedder.embedded)
    stack.embedder.dimension = DIMENSION // 2
    for _ in range(8):
        found = outage.search()
        assert found["search_method"] == "database_text"
        assert found["note"]
    outage.change()
    for _ in range(4):
        assert outage.search()["search_method"] == "database_text"
    spoilt = len(stack.embedder.embedded) - before

    stack.embedder.dimension = DIMENSION
    outage.report("embedder of another dimension", spoilt, outage.whole())


@pytest.mark.slow
def test_a_strangers_collection_under_our_name_stays_as_it_is_and_nothing_is_embedded_again(
    stack: Stack, outage: Outage
) -> None:
    strangers: list[int | str] = [*range(1, 40), *(str(UUID(int=number)) for number in range(1, 40))]
    with httpx.Client(base_url=stack.qdrant.url) as qdrant:
        [name] = [it["name"] for it in qdrant.get("/collections").json()["result"]["collections"]]
        ours = qdrant.post(f"/collections/{name}/points", json={"ids": list(outage.ids.values())}).json()["result"]
        # Half of them pretend to be of this user, so that searches meet them.
        payloads = [{"data": "not ours"}, {"data": "not ours", "owner": ours[0]["payload"]["owner"]}]
        points = [
            {"id": id, "vector": [1.0] * DIMENSION, "payload": payloads[number % 2]}
            for number, id in enumerate(strangers)
        ]
        one = {"size": DIMENSION, "distance": "Cosine"}
        several = {"multivector_config": {"comparator": "max_sim"}}
        form = {"vectors": {"": one, "more": one | several}, "sparse_vectors": {"words": {}}}
        made = 0
        while made != 200:  # the service may be quicker, and make the collection again
            qdrant.delete(f"/collections/{name}")
            made = qdrant.put(f"/collections/{name}", json=form).status_code
        assert qdrant.put(f"/collections/{name}/points", json={"points": points}).status_code == 200
        before = len(stack.embedder.embedded)
        recovered = outage.whole()
        asked = ("the ", "The quick brown fox")  # by the search and by the doctor
        again = [text for text in stack.embedder.embedded[before:] if not text.startswith(asked)]
        assert set(again) <= set(background_texts())  # by the first search of a collection
        left = qdrant.post(f"/collections/{name}/points", json={"ids": strangers}).json()["result"]
        there = {it["name"] for it in qdrant.get("/collections").json()["result"]["collections"]}
    assert {point["id"] for point in left} == set(strangers)
    assert len(there - {name}) == 1, "ours has a name of its own"
    outage.report("foreign collection", len(points), recovered)

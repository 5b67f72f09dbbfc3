"""A change of `qdrant.collection`: the same model, another name, over the built-in index and over a server."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path
from uuid import UUID

import httpx
import pytest

from openmemory.index.space import Space
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services
from tests.faults.embedding_server import EmbeddingServer
from tests.index.models import ann, collections, running

Running = Callable[..., AbstractAsyncContextManager[Services]]
SUFFIX = "__all-minilm-l6-v2-int8__384__words-scope"


@pytest.fixture(params=["built in", "server"])
async def start(request: pytest.FixtureRequest, folder: Path, qdrant_url: str) -> AsyncIterator[Running]:
    """Opens services whose memories are in collections named `before`, or whatever `collection` says."""
    if request.param == "built in":
        yield partial(running, folder, collection="before")
        return
    yield partial(running, folder, collection="before", qdrant=qdrant_url)
    async with httpx.AsyncClient(base_url=qdrant_url) as qdrant:
        for one in (await qdrant.get("/collections")).json()["result"]["collections"]:
            await qdrant.delete(f"/collections/{one['name']}")


async def fill(start: Running) -> list[UUID]:
    """Twelve memories in the collection `before`, which an alias or the file `current` names."""
    async with start() as services:
        news = [MemoryCreate(text=f"fact number {n} about tea") for n in range(12)]
        added = await services.memories.add_many(await ann(services), news)
        await services.rebuild.step()
        await services.reconciler.sync(trigger="test")
        return [one.id for one in added]


async def renamed(services: Services) -> Space:
    """Let the collection of the new name take over; returns the space of the old one."""
    await services.rebuild.step()
    assert await collections(services) == {f"before{SUFFIX}": "retired", f"after{SUFFIX}": "active"}
    [old] = services.spaces.retired
    return old


async def held(space: Space) -> dict[UUID, int]:
    """The revisions that a collection holds."""
    return {entry.id: entry.revision async for page in space.index.entries() for entry in page}


async def cosine(services: Services, query: str) -> float | None:
    """How near the best memory is by meaning; None if words alone found it."""
    answer = await services.search.search(await ann(services), SearchQuery(query))
    assert (answer.search_method, answer.note) == (Method.HYBRID, None)
    return answer.results[0].parts.cosine


async def test_the_collection_of_the_new_name_takes_over_and_nothing_is_embedded_again(start: Running) -> None:
    ids = await fill(start)
    async with start(collection="after") as services:
        old = await renamed(services)
        assert set(await held(services.spaces.serving)) == set(await held(old)) == set(ids)
        [run] = [run for run in await services.reconciler.runs(10) if run.trigger == "rebuild"]
        assert (run.status, run.statistics.embedded, run.statistics.memories_synced) == ("success", 0, len(ids))


@pytest.mark.slow
async def test_memories_added_after_a_rename_stay_in_the_new_collection(start: Running) -> None:
    await fill(start)
    async with start(collection="after") as services:
        old = await renamed(services)
        added = await services.memories.add(await ann(services), MemoryCreate(text="The violin is in the attic."))
        await services.outbox_delivery.drain()
        assert added.id in await held(services.spaces.serving)
        assert added.id not in await held(old)
        assert (await cosine(services, "Where is the fiddle?") or 0) > 0.3


@pytest.mark.slow
async def test_erasing_after_a_rename_reaches_the_old_collection(start: Running) -> None:
    ids = await fill(start)
    async with start(collection="after") as services:
        old = await renamed(services)
        caller = await ann(services)
        await services.memories.erase(caller, [ids[0]])
        await services.memories.update(caller, ids[1], MemoryUpdate(text="fact number 1 about coffee"))
        await services.outbox_delivery.drain()
        assert set(await held(old)) == {*ids[2:]}
        assert await held(services.spaces.serving) == {ids[1]: 2} | dict.fromkeys(ids[2:], 1)


@pytest.mark.slow
async def test_the_old_collection_goes_and_the_one_in_use_stays(
    start: Running, caplog: pytest.LogCaptureFixture
) -> None:
    ids = await fill(start)
    caplog.set_level(logging.INFO)
    async with start(collection="after", keep=0) as services:
        for _ in range(4):
            await services.rebuild.step()
            await services.reconciler.sync(trigger="test")
        assert await collections(services) == {f"after{SUFFIX}": "active"}
        assert set(await held(services.spaces.serving)) == set(ids)
        assert await cosine(services, "a fact about tea") is not None
    assert caplog.text.count("are removed") == 1
    assert "stays until" not in caplog.text


@pytest.mark.slow
async def test_the_former_name_comes_back_with_what_was_written_since(start: Running) -> None:
    ids = await fill(start)
    async with start(collection="after") as services:
        await renamed(services)
        caller = await ann(services)
        added = await services.memories.add(caller, MemoryCreate(text="The violin is in the attic."))
        await services.memories.erase(caller, [ids[0]])
        await services.outbox_delivery.drain()
    async with start() as services:
        await services.rebuild.step()
        assert await collections(services) == {f"before{SUFFIX}": "active", f"after{SUFFIX}": "retired"}
        assert set(await held(services.spaces.serving)) == {added.id, *ids[1:]}


@pytest.mark.slow
async def test_a_name_and_a_model_change_together(start: Running, server: EmbeddingServer) -> None:
    ids = await fill(start)
    async with start(server, collection="after", keep=0) as services:
        await services.rebuild.step()
        await services.rebuild.step()
        [(name, state)] = (await collections(services)).items()
        assert (name.startswith("after__openai-other"), state) == (True, "active")
        assert set(await held(services.spaces.serving)) == set(ids)

"""An index that lacks something is noticed, said and mended, over the built-in index and over a server."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.index.models import ItemKind
from openmemory.index.port import IndexUnavailable, Watermark
from openmemory.jobs.schedule import scheduled
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.candidates.retrieval import INDEX_BEHIND
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services
from openmemory.stores import INDEX_FOLDER
from openmemory.telemetry.process import state
from tests.faults.qdrant import Qdrant
from tests.index.models import ann, running

MEMORIES = 20
Eventually = Callable[..., Awaitable[None]]


@dataclass
class Installation:
    """Services, in which nothing runs but on request, and the storage of their index."""

    folder: Path
    qdrant: Qdrant | None
    services: Services = field(init=False)
    _open: AsyncExitStack = field(default_factory=AsyncExitStack)

    @property
    def storage(self) -> Path:
        return self.folder / INDEX_FOLDER if self.qdrant is None else self.qdrant.folder

    async def start(self) -> None:
        url = "" if self.qdrant is None else self.qdrant.url
        self.services = await self._open.enter_async_context(running(self.folder, qdrant=url))

    async def stop(self) -> None:
        await self._open.aclose()

    async def change(self, change: Callable[[Path], object]) -> None:
        """Change the storage while nobody looks: only who owns it is stopped and started, services or server."""
        if self.qdrant is None:
            await self.stop()
            change(self.storage)
            await self.start()
        else:
            self.qdrant.stop()
            change(self.storage)
            self.qdrant.start()

    async def fill(self) -> list[UUID]:
        caller = await ann(self.services)
        news = [MemoryCreate(text=f"fact number {n} about tea") for n in range(MEMORIES)]
        added = await self.services.memories.add_many(caller, news)
        await self.services.outbox_delivery.drain()
        await self.look()
        return [one.id for one in added]

    async def look(self) -> None:
        """What the job does every few seconds."""
        await self.services.monitor.check(self.services.spaces.serving)

    async def found(self, query: str = "a fact about tea") -> tuple[int, str | None]:
        """How many memories a search finds by meaning, and what the answer notes."""
        answer = await self.services.search.search(await ann(self.services), SearchQuery(query, limit=100))
        assert answer.search_method is Method.HYBRID
        return sum(result.parts.cosine is not None for result in answer.results), answer.note

    async def problems(self) -> list[str]:
        found = await self.services.health.diagnose()
        assert (found.status == "ok") is (found.problems == [])
        return found.problems

    def behind(self) -> float:
        """The gauge that an administrator watches."""
        [found] = [metric for metric in state(self.services) if metric.name == "openmemory_index_behind"]
        value: float = found.samples[0].value
        return value


@asynccontextmanager
async def installed(folder: Path, qdrant: Qdrant | None) -> AsyncIterator[Installation]:
    """An installation that runs until the block ends."""
    if qdrant is not None:
        qdrant.start()
    installation = Installation(folder, qdrant)
    await installation.start()
    try:
        yield installation
    finally:
        await installation.stop()
        if qdrant is not None:
            qdrant.stop()


@pytest.fixture(params=["built in", "server"])
def installing(request: pytest.FixtureRequest, folder: Path) -> Callable[[], AbstractAsyncContextManager[Installation]]:
    """Makes an installation with the built-in index, or with a server; tests enter and leave it in their own task."""
    qdrant = None if request.param == "built in" else Qdrant(folder / "server")
    return lambda: installed(folder, qdrant)


@pytest.mark.slow
async def test_a_new_installation_is_whole_from_its_first_memory_on(installing) -> None:
    async with installing() as place:
        await place.fill()
        assert await place.found() == (MEMORIES, None)
        await place.change(lambda _: None)
        assert await place.found() == (MEMORIES, None)
        assert (await place.problems(), place.behind()) == ([], 0)


@pytest.mark.slow
async def test_what_was_delivered_just_before_the_end_of_a_process_leaves_no_doubt(installing) -> None:
    async with installing() as place:
        await place.fill()
        await place.services.memories.add(await ann(place.services), MemoryCreate(text="Tea is served at five."))
        await place.services.outbox_delivery.drain()
        await place.stop()
        await place.start()
        assert await place.found() == (MEMORIES + 1, None)


@pytest.mark.slow
async def test_a_lost_collection_is_said_to_be_incomplete_until_a_sync_has_filled_it(installing) -> None:
    async with installing() as place:
        await place.fill()
        await place.change(shutil.rmtree)
        await place.look()
        assert await place.found() == (0, INDEX_BEHIND)
        assert place.behind() == 1
        assert any("memories may be missing" in problem for problem in await place.problems())
        await place.services.memories.add(await ann(place.services), MemoryCreate(text="Tea is served at five."))
        await place.services.outbox_delivery.drain()
        await place.look()
        assert await place.found() == (1, INDEX_BEHIND)
        await place.services.reconciler.sync(trigger="test")
        assert await place.found() == (MEMORIES + 1, None)
        assert (await place.problems(), place.behind()) == ([], 0)


@pytest.mark.slow
async def test_the_first_search_after_a_collection_was_lost_finds_what_it_held_by_words(installing) -> None:
    async with installing() as place:
        await place.fill()
        await place.change(shutil.rmtree)
        # It is not delivered, so its words are looked for in PostgreSQL, and those of the others in the index.
        await place.services.memories.add(await ann(place.services), MemoryCreate(text="a fact about tea at five"))
        query = SearchQuery("a fact about tea", limit=100)
        answer = await place.services.search.search(await ann(place.services), query)
        assert len(answer.results) == MEMORIES + 1
        assert answer.note


@pytest.mark.slow
async def test_a_refill_that_was_cut_off_is_still_known_to_be_incomplete_after_a_restart(installing) -> None:
    async with installing() as place:
        ids = await place.fill()
        await place.change(shutil.rmtree)
        await place.look()  # a server tells now that the collection is gone
        repair = place.services.reconciler._repair
        async for some in repair.prepare(place.services.spaces.serving, ItemKind.MEMORY, ids[:5]):
            await repair.put(place.services.spaces.serving, some)
        await place.stop()
        await place.start()
        assert await place.found() == (5, INDEX_BEHIND)


async def rewritten(place: Installation, older: Path) -> Callable[[Path], object]:
    """Copy the storage, and then rewrite every memory; returns what puts the older storage back."""
    ids = await place.fill()
    await place.change(lambda storage: shutil.copytree(storage, older))
    caller = await ann(place.services)
    for n, id_ in enumerate(ids):
        await place.services.memories.update(caller, id_, MemoryUpdate(text=f"violin number {n} in the attic"))
    await place.services.outbox_delivery.drain()
    await place.look()
    assert await place.found("violins") == (MEMORIES, None)
    return lambda storage: (shutil.rmtree(storage), shutil.copytree(older, storage))


async def revisions(place: Installation) -> list[int]:
    return [entry.revision async for page in place.services.index.entries() for entry in page]


@pytest.mark.slow
async def test_an_older_storage_that_was_put_back_is_noticed_and_a_sync_is_asked_for(
    installing, tmp_path: Path
) -> None:
    async with installing() as place:
        await place.change(await rewritten(place, tmp_path / "older"))
        asked: list[bool] = []
        place.services.spaces.on_recovery = lambda: asked.append(True)
        await place.look()
        assert await revisions(place) == [1] * MEMORIES
        assert (await place.found("violins"))[1] == INDEX_BEHIND
        assert asked == [True]
        await place.look()
        assert asked == [True], "once is enough"
        await place.services.reconciler.sync(trigger="test")
        assert await revisions(place) == [2] * MEMORIES
        assert await place.found("violins") == (MEMORIES, None)


@pytest.mark.slow
async def test_an_older_storage_that_is_put_back_while_nobody_searches_is_mended_by_itself(
    folder: Path, tmp_path: Path, eventually: Eventually
) -> None:
    async with installed(folder, Qdrant(folder / "server")) as place:
        put_back = await rewritten(place, tmp_path / "older")
        async with scheduled(place.services):

            async def synced() -> bool:
                return any(run.status == "success" for run in await place.services.reconciler.runs(5))

            async def whole() -> bool:
                return place.behind() == 0 and await revisions(place) == [2] * MEMORIES

            await eventually(synced)
            await place.change(put_back)
            await eventually(whole, within=30)


@pytest.mark.slow
async def test_an_erased_memory_that_an_older_storage_brings_back_is_noticed(installing, tmp_path: Path) -> None:
    async with installing() as place:
        ids = await place.fill()
        await place.change(lambda storage: shutil.copytree(storage, tmp_path / "older"))
        await place.services.memories.erase(await ann(place.services), [ids[0]])
        await place.services.outbox_delivery.drain()
        await place.look()
        await place.change(lambda storage: (shutil.rmtree(storage), shutil.copytree(tmp_path / "older", storage)))
        await place.look()
        assert place.behind() == 1
        await place.services.reconciler.sync(trigger="test")
        assert await place.services.index.count() == MEMORIES - 1
        assert place.behind() == 0


@pytest.mark.slow
async def test_a_look_writes_only_after_something_was_delivered(installing) -> None:
    async with installing() as place:
        await place.fill()
        first = await place.services.index.watermark()
        await place.look()
        await place.services.reconciler.sync(trigger="test")
        assert await place.services.index.watermark() == first
        await place.services.memories.add(await ann(place.services), MemoryCreate(text="Tea is served at five."))
        await place.services.outbox_delivery.drain()
        await place.look()
        assert first is not None
        assert await place.services.index.watermark() == first._replace(sequence=first.sequence + 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "why"),
    [
        ("epoch = gen_random_uuid()", "filled for another database"),
        ("watermark = watermark + 1", "it went back"),
        ("watermark = watermark - 2", "the database went back"),
    ],
)
async def test_why_an_index_is_behind_is_told(installing, change: str, why: str) -> None:
    async with installing() as place:
        await place.fill()
        await place.look()
        space = place.services.spaces.serving
        await place.services.monitor.advance(space)
        async with place.services.database.transaction() as tx:
            await tx.execute(text(f"UPDATE index_generations SET {change}"))
        await place.look()
        assert why in (space.behind or "")
        assert any(why in problem for problem in await place.problems())
        await place.services.reconciler.sync(trigger="test")
        await place.look()
        assert space.behind is None


async def test_a_sync_under_which_the_storage_went_back_does_not_count(installing) -> None:
    async with installing() as place:
        await place.fill()
        index = place.services.index
        before = await index.watermark()
        assert before is not None
        caller = await ann(place.services)
        await place.services.memories.add(caller, MemoryCreate(text="Tea is served at five."))

        async def drain(**options: float) -> object:
            done = await drained(**options)
            await index.set_watermark(before._replace(sequence=before.sequence - 1))
            return done

        drained, place.services.outbox_delivery.drain = place.services.outbox_delivery.drain, drain  # type: ignore[method-assign]
        with pytest.raises(IndexUnavailable, match="went back to an older state while it was compared"):
            await place.services.reconciler.sync(trigger="test")
        await place.look()
        assert place.behind() == 1


@pytest.mark.slow
async def test_two_processes_that_advance_at_once_raise_no_alarm(installing) -> None:
    async with installing() as place:
        await place.fill()
        space = place.services.spaces.serving
        held = await place.services.index.watermark()
        assert held is not None
        # Another process has written its watermark to the collection and not yet to PostgreSQL.
        await place.services.index.set_watermark(held._replace(sequence=held.sequence + 1))
        await place.look()
        assert space.behind is None
        space.unconfirmed = True
        await place.look()
        assert (await place.services.index.watermark(), space.behind) == (
            Watermark(held.epoch, held.sequence + 1),
            None,
        )

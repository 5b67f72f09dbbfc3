"""What happens between two steps of delivery, sync and takeover: each interleaving is made to happen."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from sqlalchemy import text

from openmemory.database.engine import Tx
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Unavailable
from openmemory.index.generations import registry
from openmemory.index.models import ItemKind
from openmemory.index.port import IndexUnavailable
from openmemory.index.space import Space
from openmemory.index.sync import outbox
from openmemory.jobs.syncing import Syncing
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.resilience.circuit_breaker import BreakerState
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services
from openmemory.stores import INDEX_FOLDER
from tests.faults.embedding_server import EmbeddingServer
from tests.index.models import LOCAL, ann, begun, collections, filled, put, running

Ask = Callable[[Any], Awaitable[Any]]

FILE = text(
    """
    WITH made AS (INSERT INTO categories (name) VALUES ('drinks') RETURNING id)
    INSERT INTO memory_categories (memory_id, category_id, automatic) SELECT :id, id, true FROM made
    """
)


class Model:
    """The model of a space, which can be away or refuse texts that hold a word."""

    def __init__(self, space: Space, monkeypatch: pytest.MonkeyPatch) -> None:
        inner = space.embedder.inner
        self.away = False
        self.refuses = ""
        monkeypatch.setattr(inner, "query", self._like(inner.query))
        monkeypatch.setattr(inner, "documents", self._like(inner.documents))

    def _like(self, real: Ask) -> Ask:
        async def ask(asked: str | Sequence[str]) -> Any:
            texts = [asked] if isinstance(asked, str) else asked
            if self.away or (self.refuses and any(self.refuses in each for each in texts)):
                raise EmbedderUnavailable("not now, or not this")
            return await real(asked)

        return ask


async def held(services: Services, space: Space | None = None) -> dict[UUID, int]:
    """The revisions that a space holds, the one in use if none is named."""
    index = services.index if space is None else space.index
    return {entry.id: entry.revision async for page in index.entries() for entry in page}


async def marked(services: Services) -> int:
    async with services.database.statement() as tx:
        return int(await tx.scalar(text("SELECT count(*) FROM index_outbox")) or 0)


async def due_now(services: Services) -> None:
    async with services.database.transaction() as tx:
        await tx.execute(text("UPDATE index_outbox SET due_at = now()"))


async def refused_until_alone(services: Services) -> None:
    """Deliver as often as it takes until the marks are tried one by one."""
    for _ in range(6):
        await due_now(services)
        await services.outbox_delivery.drain()


def stop_postgres(folder: Path) -> None:
    """As an operator would, at once."""
    [file] = folder.rglob("postmaster.pid")
    os.kill(int(file.read_text().split()[0]), signal.SIGINT)


# The model away, or refusing.


async def test_what_is_erased_leaves_the_index_while_the_model_is_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(folder) as services:
        caller = await ann(services)
        old = await services.memories.add(caller, MemoryCreate(text="the old secret about tea"))
        await services.outbox_delivery.drain()
        Model(services.spaces.serving, monkeypatch).away = True
        await services.memories.add(caller, MemoryCreate(text="a newer one"))
        await refused_until_alone(services)
        assert services.outbox_delivery.breaker.state is not BreakerState.CLOSED
        await services.memories.erase(caller, [old.id])
        await services.outbox_delivery.drain()
        assert old.id not in await held(services)
        assert await marked(services) == 1


async def test_a_sync_without_the_model_takes_out_what_should_not_be_there(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await filled(folder, 3)
    async with running(folder) as services:
        caller = await ann(services)
        Model(services.spaces.serving, monkeypatch).away = True
        await services.memories.update(caller, ids[0], MemoryUpdate(text="tea, said anew"))
        await services.memories.delete(caller, [ids[1]])
        async with services.database.transaction() as tx:
            await tx.execute(text("DELETE FROM index_outbox"))
        with pytest.raises(EmbedderUnavailable):
            await services.reconciler.sync(trigger="test")
        assert await held(services) == {ids[2]: 1}


@pytest.mark.slow
@pytest.mark.parametrize("repair", ["delivery", "sync"])
async def test_a_text_that_the_model_refuses_does_not_leave_the_older_one_in_its_place(
    folder: Path, monkeypatch: pytest.MonkeyPatch, repair: str
) -> None:
    async with running(folder) as services:
        caller = await ann(services)
        memory = await services.memories.add(caller, MemoryCreate(text="the old secret about tea"))
        other = await services.memories.add(caller, MemoryCreate(text="another fact"))
        await services.outbox_delivery.drain()
        model = Model(services.spaces.serving, monkeypatch)
        model.refuses = "REFUSED"
        await services.memories.update(caller, memory.id, MemoryUpdate(text="REFUSED words"))
        if repair == "sync":
            async with services.database.transaction() as tx:
                await tx.execute(text("DELETE FROM index_outbox"))
            assert (await services.reconciler.sync(trigger="test")).errors
        else:
            await refused_until_alone(services)
            await services.outbox_delivery.breaker.ask_again()
            await refused_until_alone(services)
        assert await held(services) == {other.id: 1}
        model.refuses = ""
        await services.reconciler.sync(trigger="test")
        assert await held(services) == {other.id: 1, memory.id: 2}


async def test_one_refused_text_does_not_keep_opening_the_circuit_of_delivery(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(folder) as services:
        caller = await ann(services)
        Model(services.spaces.serving, monkeypatch).refuses = "REFUSED"
        await services.memories.add(caller, MemoryCreate(text="REFUSED words"))
        await refused_until_alone(services)
        await services.outbox_delivery.breaker.ask_again()
        for _ in range(5):
            await due_now(services)
            await services.outbox_delivery.drain()
        assert services.outbox_delivery.breaker.state is BreakerState.CLOSED


@pytest.mark.slow
async def test_refused_queries_do_not_take_the_model_away_from_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(folder, 3)
    async with running(folder) as services:
        caller = await ann(services)
        Model(services.spaces.serving, monkeypatch).refuses = "endless"
        for number in range(4):
            refused = await services.search.search(caller, SearchQuery(f"{number} endless tea"))
            assert refused.note is not None
        assert (await services.search.search(caller, SearchQuery("when is tea"))).note is None


@pytest.mark.slow
async def test_nothing_is_tried_in_a_hurry_while_it_is_known_to_be_away(
    folder: Path, monkeypatch: pytest.MonkeyPatch, eventually: Any
) -> None:
    looks = 0
    real = outbox.next_due

    async def counted(tx: Tx) -> float | None:
        nonlocal looks
        looks += 1
        return await real(tx)

    async with running(folder) as services:
        caller = await ann(services)
        Model(services.spaces.serving, monkeypatch).away = True
        await services.memories.add(caller, MemoryCreate(text="tea"))
        await refused_until_alone(services)
        await due_now(services)
        monkeypatch.setattr(outbox, "next_due", counted)
        services.outbox_delivery.start()

        async def looked() -> bool:
            return looks > 0

        await eventually(looked)
        await asyncio.sleep(0.5)  # in which a hurry would show
        assert looks <= 2
        await services.outbox_delivery.stop()


# Changes of the model.


@pytest.mark.slow
async def test_a_collection_that_another_replica_rolled_back_to_stays_open(
    folder: Path, server: EmbeddingServer
) -> None:
    ids = await filled(folder)
    async with running(folder, server) as services:
        watcher = services.rebuild._watcher
        old, new = services.spaces.serving, await begun(services)
        async with services.database.transaction() as tx:
            assert await registry.activate(tx, new.collection)
            await registry.want(tx, LOCAL, old.model, 384, {"provider": "local"})
        await watcher.follow()
        assert (services.spaces.serving, services.spaces.building) == (new, old)
        async with services.database.transaction() as tx:
            assert await registry.activate(tx, LOCAL)
        await watcher.follow()
        assert services.spaces.serving is old
        assert await services.index.count() == len(ids)


@pytest.mark.slow
@pytest.mark.parametrize("step", ["forget", "forget_vectors"])
async def test_removing_an_old_collection_goes_on_where_it_was_cut_off(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    ids = await filled(folder)
    async with running(folder, server, keep=0) as services:
        await services.rebuild._build(await begun(services))

        async def away(*_: object) -> None:
            raise Unavailable("The database does not answer.", code="database_unavailable")

        with monkeypatch.context() as patch:
            patch.setattr(registry, step, away)
            with pytest.raises(Unavailable):
                await services.rebuild.step()
        added = await services.memories.add(await ann(services), MemoryCreate(text="tea after the hiccup"))
        assert (await services.outbox_delivery.drain()).failed == 0
        await services.rebuild.step()
        assert list((await collections(services)).values()) == ["active"]
        assert set(await held(services)) == {*ids, added.id}
        async with services.database.statement() as tx:
            models = (await tx.scalars(text("SELECT DISTINCT model FROM embeddings"))).all()
        assert models == ["openai/other"]
        assert not (folder / INDEX_FOLDER / LOCAL).exists()


@pytest.mark.slow
async def test_an_erasure_that_a_given_up_collection_missed_reaches_it_with_the_next_sync(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await filled(folder, 6)
    async with running(folder, server) as services:
        caller = await ann(services)
        watcher = services.rebuild._watcher
        new = await begun(services)
        await put(services, new, ids)

        async def away(_ids: Sequence[UUID]) -> None:
            raise IndexUnavailable("not now")

        with monkeypatch.context() as patch:
            patch.setattr(new.index, "delete", away)
            await services.memories.erase(caller, [ids[0]])
            assert (await services.outbox_delivery.drain()).failed == 0
        async with services.database.transaction() as tx:
            await registry.want(tx, LOCAL, services.spaces.serving.model, 384, {"provider": "local"})
        await watcher.follow()
        assert services.spaces.retired == [new]
        await services.reconciler.sync(trigger="test")
        assert set(await held(services, new)) == set(ids[1:])


async def test_a_retired_collection_that_is_away_holds_up_no_delivery(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(folder, 3)
    async with running(folder, server) as services:
        await services.rebuild.step()
        [old] = services.spaces.retired
        await old.index.close()
        await services.memories.add(await ann(services), MemoryCreate(text="tea all the same"))
        done = await services.outbox_delivery.drain()
        assert (done.written, done.failed) == (1, 0)
        assert (await services.reconciler.sync(trigger="test")).errors == 0


@pytest.mark.slow
async def test_what_changes_while_another_model_takes_over_is_delivered_to_it_too(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await filled(folder)
    async with running(folder, server) as services:
        watcher = services.rebuild._watcher
        old, new = services.spaces.serving, await begun(services)
        await put(services, new, ids)
        real = old.index.delete

        async def overtaken(gone: Sequence[UUID]) -> None:
            await real(gone)
            if services.spaces.serving is old:
                async with services.database.transaction() as tx:
                    await registry.activate(tx, new.collection)
                await watcher.follow()

        monkeypatch.setattr(old.index, "delete", overtaken)
        await services.memories.erase(await ann(services), [ids[0]])
        await services.outbox_delivery.drain()
        assert services.spaces.serving is new
        assert set(await held(services)) == set(ids[1:])


async def test_a_takeover_whose_answer_is_lost_is_followed_by_a_sync_all_the_same(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(folder)
    async with running(folder, server) as services:
        asked: list[str] = []
        services.spaces.on_recovery = lambda: asked.append("sync")
        activate, transaction = registry.activate, services.database.transaction
        lost = False

        async def losing(tx: Tx, collection: str) -> bool:
            nonlocal lost
            lost = True
            return await activate(tx, collection)

        @asynccontextmanager
        async def cut() -> AsyncIterator[Tx]:
            nonlocal lost
            async with transaction() as tx:
                yield tx
            if lost:
                lost = False
                raise Unavailable("The answer is lost.", code="database_unavailable")

        monkeypatch.setattr(registry, "activate", losing)
        monkeypatch.setattr(services.database, "transaction", cut)
        with pytest.raises(Unavailable):
            await services.rebuild.step()
        assert services.spaces.building is not None
        await services.rebuild.step()
        assert (services.spaces.building, asked) == (None, ["sync"])


@pytest.mark.slow
async def test_a_sync_that_ends_after_a_takeover_leaves_the_alias_with_the_new_collection(
    folder: Path, server: EmbeddingServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(folder)
    async with running(folder, server) as services:
        reconciler = services.reconciler
        compare_space = reconciler.compare_space

        async def overtaken(space: Space, *arguments: Any, **options: Any) -> int:
            different = await compare_space(space, *arguments, **options)
            if space.collection == LOCAL:
                await services.rebuild.step()
            return different

        monkeypatch.setattr(reconciler, "compare_space", overtaken)
        await reconciler.sync(trigger="test")
        current = (folder / INDEX_FOLDER / "current").read_text().strip()
        assert current == services.spaces.serving.collection != LOCAL


# Leases and ends.


async def test_a_lease_is_renewed_though_its_flag_was_raised_again_and_only_by_its_holder(folder: Path) -> None:
    async with running(folder) as services:
        caller = await ann(services)
        memory = await services.memories.add(caller, MemoryCreate(text="tea"))

        async def on_marks(work: Callable[[Tx], Awaitable[Any]]) -> Any:
            async with services.database.transaction() as tx:
                return await work(tx)

        async def seconds_left() -> float:
            return float(await on_marks(outbox.next_due))

        first = await on_marks(lambda tx: outbox.claim(tx, ItemKind.MEMORY, limit=10, lease=1))
        await services.memories.update(caller, memory.id, MemoryUpdate(text="tea, said anew"))
        await on_marks(lambda tx: outbox.renew(tx, first, lease=300))
        assert await seconds_left() > 200
        await due_now(services)
        [second] = await on_marks(lambda tx: outbox.claim(tx, ItemKind.MEMORY, limit=10, lease=120))
        assert (second.id, second.attempts) == (memory.id, first[0].attempts)
        await on_marks(lambda tx: outbox.renew(tx, first, lease=0))
        await on_marks(lambda tx: outbox.postpone(tx, first, "late", ceiling=0))
        assert await seconds_left() > 100


@pytest.mark.slow
@pytest.mark.parametrize("change", ["said anew", "filed by the service"])
async def test_a_sync_that_is_cut_off_marks_what_was_changed_under_its_hands(
    folder: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """A filing raises no revision."""
    ids = await filled(folder, 3)
    async with running(folder) as services:
        caller = await ann(services)
        await services.index.delete(ids)
        repair = services.reconciler._repair
        put = repair.put

        async def overtaken(*arguments: Any) -> None:
            await put(*arguments)
            if change == "said anew":
                await services.memories.update(caller, ids[0], MemoryUpdate(text="tea, said anew"))
            async with services.database.transaction() as tx:
                if change == "filed by the service":
                    await tx.execute(FILE, {"id": ids[0]})
                await tx.execute(text("DELETE FROM index_outbox"))  # as if it had been delivered before the writing
            raise asyncio.CancelledError

        monkeypatch.setattr(repair, "put", overtaken)
        with pytest.raises(asyncio.CancelledError):
            await services.reconciler.sync(trigger="test")
        assert await marked(services) == 1


@pytest.mark.slow
async def test_a_sync_can_be_ended_while_postgres_is_away(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    await filled(folder, 3)
    async with running(folder) as services:
        entered = asyncio.Event()

        async def endless(*_: Any, **__: Any) -> int:
            entered.set()
            await asyncio.sleep(3600)
            return 0

        monkeypatch.setattr(services.reconciler, "compare_space", endless)
        syncing = Syncing(services)
        syncing.ask("test")
        await entered.wait()
        stop_postgres(folder)
        async with asyncio.timeout(20):
            await syncing.close()

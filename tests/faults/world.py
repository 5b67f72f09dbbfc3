"""The service's parts around an index that can crash, vanish and lie, run from synchronous code."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import text

from openmemory.config.settings import Settings
from openmemory.index.entries import IndexEntries
from openmemory.index.lease import Lease
from openmemory.index.models import ItemKind
from openmemory.index.monitor import IndexMonitor
from openmemory.index.port import (
    Filter,
    Hit,
    IndexStatus,
    IndexUnavailable,
    Point,
    SparseVector,
    Vector,
    VectorIndex,
    Watermark,
)
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.reconcile import Reconciler, SyncStatistics
from openmemory.search.service import Search
from openmemory.services import INDEXED_TABLES, Services, open_services
from tests.clusters import furnish

T = TypeVar("T")

STEPS = ("before upsert", "after upsert", "before delete", "after delete", "before watermark", "after watermark")
"""Where a process can die that talks to the index. Before and after the transactions around it nothing differs."""


class Crash(BaseException):
    """The process ends here: nothing after it runs, what it had claimed stays claimed."""


class FaultyIndex:
    """A real index that is away while `away`; at `crash_at` the process dies, once; `meanwhile` happens, once, before
    an upsert, when the rows to be delivered have been read."""

    def __init__(self, inner: VectorIndex) -> None:
        self.inner = inner
        self.away = False
        self.crash_at: str | None = None
        self.meanwhile: Callable[[], Awaitable[object]] | None = None

    async def open(self) -> None:
        await self.inner.open()

    async def renew(self) -> None:
        self._answer()
        await self.inner.renew()

    async def close(self) -> None:
        await self.inner.close()

    async def upsert(self, points: Sequence[Point]) -> None:
        self._step("before upsert")
        if self.meanwhile is not None:
            happening, self.meanwhile = self.meanwhile, None
            await happening()
        await self.inner.upsert(points)
        self._step("after upsert")

    async def keeps_documents(self) -> bool:
        return await self.inner.keeps_documents()

    async def delete(self, ids: Sequence[UUID]) -> None:
        self._step("before delete")
        await self.inner.delete(ids)
        self._step("after delete")

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        self._answer()
        return await self.inner.search(vector, where, limit)

    async def search_words(self, words: SparseVector, where: Filter, limit: int) -> list[Hit]:
        self._answer()
        return await self.inner.search_words(words, where, limit)

    async def entries(self, user: UUID | None = None, *, page: int = 2_000) -> AsyncGenerator[IndexEntries, None]:
        self._answer()
        async for entries in self.inner.entries(user, page=page):
            yield entries

    async def count(self, user: UUID | None = None) -> int:
        self._answer()
        return await self.inner.count(user)

    async def flush(self) -> None:
        await self.inner.flush()

    async def status(self) -> IndexStatus:
        self._answer()
        return await self.inner.status()

    async def watermark(self) -> Watermark | None:
        self._answer()
        return await self.inner.watermark()

    async def set_watermark(self, watermark: Watermark) -> None:
        self._step("before watermark")
        await self.inner.set_watermark(watermark)
        self._step("after watermark")

    async def activate(self) -> None:
        await self.inner.activate()

    async def drop(self) -> None:
        await self.inner.drop()

    def _answer(self) -> None:
        if self.away:
            raise IndexUnavailable("switched off")

    def _step(self, step: str) -> None:
        self._answer()
        if self.crash_at == step:
            self.crash_at = None
            raise Crash(step)


class World:
    """Services in a thread with an event loop, and the deliverer, the sync and the search over a `FaultyIndex`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, services: Services) -> None:
        self._loop = loop
        self.services = services
        self.index = FaultyIndex(services.index)
        spaces = Spaces(Space(services.embedder, self.index, collection=services.spaces.serving.collection))
        self.outbox_delivery = OutboxDelivery(services.database, spaces, INDEXED_TABLES)
        monitor = IndexMonitor(services.database, Lease(), on_behind=lambda: None)
        self.reconciler = Reconciler(services.database, spaces, self.outbox_delivery, INDEXED_TABLES, monitor)
        self.search = Search(services.database, spaces, services.settings, services.rates)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it and wait for it, a minute at most. A `Crash` passes through like any exception."""
        return asyncio.run_coroutine_threadsafe(_carried(work), self._loop).result(60)()

    async def restart(self) -> None:
        """What a start does with the claims of a process that died."""
        async with self.services.database.transaction() as tx:
            await outbox.end_leases(tx)

    async def mark(self, ids: Sequence[UUID]) -> None:
        """Mark memories, whether they exist or not."""
        async with self.services.database.transaction() as tx:
            await outbox.add_entries(tx, ItemKind.MEMORY, ids)

    async def sync(self) -> SyncStatistics:
        """A sync when the index answers and every pause after a failure is over."""
        self.index.away = False
        async with self.services.database.transaction() as tx:
            await tx.execute(text("UPDATE index_outbox SET due_at = now()"))
        return await self.reconciler.sync(trigger="test")


async def _carried(work: Coroutine[Any, Any, T]) -> Any:
    """The outcome as a function: an event loop ends at a BaseException that leaves a task."""
    try:
        found = await work
    except BaseException as error:
        raised = error

        def fail() -> T:
            raise raised

        return fail
    return lambda: found


@contextmanager
def opened(folder: Path) -> Iterator[World]:
    """A world with its data in `folder`; nothing is delivered in it but on request."""
    ready: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event, Services]] = Future()

    async def live() -> None:
        ending = asyncio.Event()
        async with open_services(Settings(data_dir=str(furnish(folder)), port=0)) as services:
            await services.outbox_delivery.stop()
            ready.set_result((asyncio.get_running_loop(), ending, services))
            await ending.wait()

    def work() -> None:
        try:
            asyncio.run(live())
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    thread = threading.Thread(target=work, name="world")
    thread.start()
    loop, ending, services = ready.result(120)
    try:
        yield World(loop, services)
    finally:
        loop.call_soon_threadsafe(ending.set)
        thread.join(60)
        assert not thread.is_alive()

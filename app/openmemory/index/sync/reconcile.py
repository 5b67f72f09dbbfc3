"""The sync: compares the index with its expected content, and repairs only the differences."""

from __future__ import annotations

import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import aclosing, asynccontextmanager, suppress
from uuid import UUID

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Unavailable
from openmemory.index.entries import IndexEntries
from openmemory.index.models import ItemKind
from openmemory.index.monitor import IndexMonitor
from openmemory.index.port import IndexUnavailable, Watermark
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.diff import ComparedSection, compare, merged
from openmemory.index.sync.prefetch import ahead
from openmemory.index.sync.repair import Repair
from openmemory.index.sync.runs import Run, RunLog, SyncStatistics, recent
from openmemory.index.sync.writer import Batch, Delivered, IndexedTable, IndexWriter

log = logging.getLogger(__name__)

PAGE = 1_000
"""The number of entries per read from the index, 5 ms in the built-in engine."""

ENTRY_PAGE = 10_000
"""The number of entries per read from PostgreSQL: few round trips, which overlap with reading the index."""

CHUNK = 4_000
"""The number of items per repair."""

DRAIN = 10.0
"""The seconds for which a sync delivers outbox entries before and after the comparison. What is left is delivered
later."""

LOCK = 0x6F6D656D
"""The key of the advisory lock that allows one sync at a time across replicas. It belongs to a connection, so it is
released if the process ends."""


class SyncRunning(Exception):
    """Another run holds the lock."""


class Reconciler:
    """Keeps the index equal to PostgreSQL."""

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        outbox_delivery: OutboxDelivery,
        tables: Mapping[ItemKind, IndexedTable],
        monitor: IndexMonitor,
    ) -> None:
        self.monitor = monitor
        self._database = database
        self._spaces = spaces
        self._outbox_delivery = outbox_delivery
        self._tables = tables
        self._repair = Repair(database, IndexWriter(database, tables), outbox_delivery)

    async def sync(
        self, *, trigger: str, user: UUID | None = None, dry_run: bool = False, full: bool = False
    ) -> SyncStatistics:
        """Delivers pending outbox entries, then compares both stores by id and revision and repairs the differences.

        `user` restricts it to one user, `full` rewrites every item, and `dry_run` only counts the changes, beside
        another run if there is one. If nothing changed, it embeds nothing and writes nothing to the index. Entries that
        are written meanwhile are left to the delivery, so that it ends no matter how much is written. For an index
        that lost something, all of them are.

        Raises:
            SyncRunning: another run, of this process or another, is not finished.
            IndexUnavailable, EmbedderUnavailable: the index or the model does not answer. The next run continues.
                Or another service has the index lease.
        """
        if (refusal := self.monitor.lease.refusal) is not None:
            raise IndexUnavailable(refusal)
        space = self._spaces.serving
        if dry_run:
            return await self._count_differences(space, user, full)
        async with alone(self._database, LOCK), self.run(trigger, space, user) as run:
            try:
                before = await space.index.watermark()
                await self._outbox_delivery.breaker.ask_again()
                async with self._database.transaction() as tx:
                    await outbox.end_pauses(tx)
                # An incomplete index gets its missing items first. The background delivery writes new ones meanwhile.
                complete = space.behind is None
                if complete:
                    _count(run.statistics, await self._outbox_delivery.drain(seconds=DRAIN))
                different = await self.compare_space(space, run, user=user, full=full)
            except EmbedderUnavailable:
                await self._remove_stray(space, user)
                raise
            await self._finish(space, run, user, before)
            if different and complete:
                # Items that changed during the repair have outbox entries: their newer state must be written last.
                _count(run.statistics, await self._outbox_delivery.drain(seconds=DRAIN))
        return run.statistics

    async def _count_differences(self, space: Space, user: UUID | None, full: bool) -> SyncStatistics:
        """Counts what differs. Changes nothing, so it needs no lock and is no run of the log."""
        statistics, started = SyncStatistics(), time.perf_counter()
        async with self._parts(space, user, full) as parts:
            async for part in parts:
                statistics.total_memories += part.expected
                statistics.unchanged += part.expected - len(part.missing)
                statistics.memories_synced += len(part.missing)
                statistics.deleted += len(part.stray)
        statistics.seconds = round(time.perf_counter() - started, 6)
        return statistics

    async def _finish(self, space: Space, run: RunLog, user: UUID | None, before: Watermark | None) -> None:
        if user is None:
            await self.monitor.confirm(space, before)
        if run.statistics.memories_synced + run.statistics.deleted:
            await space.index.flush()
        for retired in [*self._spaces.retired]:
            try:
                await self._remove_stray(retired, user)
            except IndexUnavailable as error:
                log.warning("sync: %s is kept for a way back and does not answer: %s", retired.collection, error)
        # Another model may have taken over meanwhile.
        if user is None and not run.statistics.errors and space is self._spaces.serving:
            await space.index.activate()

    async def _remove_stray(self, space: Space, user: UUID | None) -> None:
        """Removes entries that should not be there, without the model."""
        async with self._parts(space, user) as parts:
            count = sum([await self._repair.remove_stray(space, part) async for part in parts])
        if count:
            log.info("sync: %d entries that are out of date left %s", count, space.collection)
            await space.index.flush()

    @asynccontextmanager
    async def run(self, trigger: str, space: Space, user: UUID | None = None) -> AsyncIterator[RunLog]:
        """A run with a log entry. The caller holds the lock."""
        async with self._database.statement() as tx:
            expected = sum([await table.count(tx, user=user) for table in self._tables.values()])
        run = await RunLog.begin(self._database, trigger, collection=space.collection, expected=expected)
        try:
            yield run
        except BaseException as error:
            with suppress(Unavailable):  # the original failure or cancellation comes first
                await run.end(error)
            raise
        await run.end()

    async def compare_space(self, space: Space, run: RunLog, *, user: UUID | None = None, full: bool = False) -> int:
        """Compares a space with PostgreSQL and repairs it; returns the number of items that differed."""
        statistics = run.statistics
        different = 0
        unverified: list[Batch] = []
        try:
            # While some items are written, the next ones are read and the previous ones verified.
            async with (
                aclosing(ahead(self._prepare(space, run, user, full))) as prepared,
                aclosing(ahead(self._put(space, prepared, unverified))) as put,
            ):
                async for items in put:
                    await self._repair.verify(items)
                    unverified.remove(items)
                    _count(statistics, items.result)
                    different += items.result.written + items.result.deleted + items.result.failed
                    await run.report()
        finally:
            with suppress(Unavailable):
                for items in unverified:  # interrupted: items that changed meanwhile must be recorded in any case
                    await self._repair.verify(items)
        return different

    async def _put(
        self, space: Space, prepared: AsyncIterator[Batch], unverified: list[Batch]
    ) -> AsyncGenerator[Batch, None]:
        async for items in prepared:
            unverified.append(items)
            await self._repair.put(space, items)
            yield items

    async def drift(self) -> int:
        """The number of entries that currently differ between the stores. Changes nothing."""
        async with self._parts(self._spaces.serving) as parts:
            return sum([len(part.missing) + len(part.stray) async for part in parts])

    async def runs(self, limit: int) -> list[Run]:
        """The newest runs, including a running one, newest first."""
        async with self._database.statement() as tx:
            return await recent(tx, limit)

    async def _prepare(self, space: Space, run: RunLog, user: UUID | None, full: bool) -> AsyncGenerator[Batch, None]:
        """The differing items in chunks, as they are in PostgreSQL, with vectors.

        Items whose delivery is still to come are left to it: two would embed each of them.
        """
        async with aclosing(self._different(space, run, user, full)) as chunks:
            async for ids in chunks:
                for kind, some in (await self._by_kind(ids)).items():
                    async with self._database.statement() as tx:
                        untried = await outbox.untried(tx, kind, some)
                    ours = [id_ for id_ in some if id_ not in untried]
                    async with aclosing(self._repair.prepare(space, kind, ours)) as loaded:
                        async for items in loaded:
                            yield items

    async def _by_kind(self, ids: list[UUID]) -> dict[ItemKind, list[UUID]]:
        """The ids by the table of their rows. Those that no table lists for the index count as memories."""
        async with self._database.statement() as tx:
            versions = await self._tables[ItemKind.PASSAGE].versions(tx, ids)
        result = dict[ItemKind, list[UUID]]()
        for id_, version in zip(ids, versions, strict=True):
            result.setdefault(ItemKind.MEMORY if version is None else ItemKind.PASSAGE, []).append(id_)
        return result

    async def _different(
        self, space: Space, run: RunLog, user: UUID | None, full: bool
    ) -> AsyncGenerator[list[UUID], None]:
        different: list[UUID] = []
        async with aclosing(self._compare_kind(space, run, user, full)) as parts:
            async for part in parts:
                different += part.missing
                different += part.stray
                while len(different) >= CHUNK:
                    yield different[:CHUNK]
                    del different[:CHUNK]
        if different:
            yield different

    async def _compare_kind(
        self, space: Space, run: RunLog, user: UUID | None, full: bool
    ) -> AsyncGenerator[ComparedSection, None]:
        async with self._parts(space, user, full) as parts:
            async for part in parts:
                run.statistics.total_memories += part.expected
                run.statistics.unchanged += part.expected - len(part.missing)
                await run.report()
                yield part

    @asynccontextmanager
    async def _parts(
        self, space: Space, user: UUID | None = None, full: bool = False
    ) -> AsyncIterator[AsyncIterator[ComparedSection]]:
        async with (
            aclosing(
                ahead(merged(*(self._expected_entries(table, user) for table in self._tables.values())))
            ) as expected,
            aclosing(ahead(self._present(space, user))) as present,
        ):
            yield compare(expected, present, full=full)

    def _present(self, space: Space, user: UUID | None) -> AsyncGenerator[IndexEntries, None]:
        if user is None:
            return space.index.entries(None, page=PAGE)
        return merged(*(space.index.entries(kind.tenant(user), page=PAGE) for kind in self._tables))

    async def _expected_entries(self, table: IndexedTable, user: UUID | None) -> AsyncGenerator[IndexEntries, None]:
        after: UUID | None = None
        while True:
            async with self._database.statement() as tx:
                page = await table.entries(tx, user=user, after=after, limit=ENTRY_PAGE)
            if page:
                yield page
            if len(page) < ENTRY_PAGE:
                return
            after = UUID(bytes=page.last)


@asynccontextmanager
async def alone(database: Database, lock: int) -> AsyncIterator[None]:
    """Holds an advisory lock.

    Raises:
        SyncRunning: another process holds it.
    """
    async with database.statement() as connection:
        if not await connection.scalar(select(func.pg_try_advisory_lock(lock))):
            raise SyncRunning("Another synchronisation is running.")
        try:
            yield
        except BaseException:
            with suppress(Exception):  # the failure or cancellation comes first; a broken connection holds no lock
                await _unlock(connection, lock)
            raise
        await _unlock(connection, lock)


async def _unlock(connection: AsyncConnection, lock: int) -> None:
    if not connection.invalidated:
        await connection.execute(select(func.pg_advisory_unlock(lock)))


def _count(statistics: SyncStatistics, result: Delivered) -> None:
    statistics.memories_synced += result.written
    statistics.deleted += result.deleted
    statistics.embedded += result.embedded
    statistics.errors += result.failed

"""The sync: compares what the index holds with what it should hold, and repairs only what differs."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import func, insert, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from app.database import Database
from app.index.deliver import Delivered, Deliverer, Source
from app.index.models import Kind, SyncRun
from app.index.port import Entry, IndexUnavailable, VectorIndex

PAGE = 2_000
LOCK = 0x6F6D656D
"""Key of the advisory lock that lets one replica sync at a time. It belongs to a connection, so a dead one frees it."""


@dataclass(slots=True)
class SyncStatistics:
    """What one run of the sync found and did. `seconds` is its duration."""

    total_memories: int = 0
    memories_synced: int = 0
    deleted: int = 0
    embedded: int = 0
    unchanged: int = 0
    errors: int = 0
    seconds: float = 0.0


class SyncRunning(Exception):
    """Another run holds the lock."""


class Reconciler:
    """Keeps the index equal to Postgres."""

    def __init__(self, database: Database, index: VectorIndex, deliverer: Deliverer, source: Source) -> None:
        self._database = database
        self._index = index
        self._deliverer = deliverer
        self._source = source

    async def sync(
        self, *, trigger: str, user: UUID | None = None, dry_run: bool = False, full: bool = False
    ) -> SyncStatistics:
        """Deliver what is marked, then compare both stores by id and revision and repair what differs.

        `user` restricts it to one user, `full` writes every item anew, `dry_run` only counts what would be done.
        With nothing changed it embeds nothing and writes nothing to the index.

        Raises:
            SyncRunning: another run, of this process or another, is not finished.
            IndexUnavailable: the index does not answer. What was found to differ stays marked.
        """
        async with self._alone():
            run = await self._begin(trigger)
            started = time.perf_counter()
            statistics = SyncStatistics()
            try:
                drained = Delivered() if dry_run else await self._deliverer.drain()
                _count(statistics, drained)
                async for different in self._differences(statistics, user, full):
                    if dry_run:
                        statistics.memories_synced += len(different)
                        continue
                    _count(statistics, await self._deliverer.redeliver(Kind.MEMORY, different))
                if not dry_run:
                    await self._index.flush()
                if not dry_run and user is None and not statistics.errors:
                    await self._index.activate()
            except BaseException as error:
                statistics.seconds = time.perf_counter() - started
                await self._end(run, statistics, str(error) or type(error).__name__)
                raise
            statistics.seconds = time.perf_counter() - started
            await self._end(run, statistics, None)
            return statistics

    async def drift(self) -> int:
        """How many entries differ between the stores now, counting only."""
        statistics = SyncStatistics()
        return sum([len(page) async for page in self._differences(statistics, None, full=False)])

    @asynccontextmanager
    async def _alone(self) -> AsyncIterator[None]:
        async with self._database.statement() as connection:
            if not await connection.scalar(select(func.pg_try_advisory_lock(LOCK))):
                raise SyncRunning("Another synchronisation is running.")
            try:
                yield
            finally:
                await _unlock(connection)

    async def _differences(
        self, statistics: SyncStatistics, user: UUID | None, full: bool
    ) -> AsyncIterator[list[UUID]]:
        """Ids of items that one side has and the other has not, or has in another revision: a merge of two streams."""
        wanted = _Cursor(self._wanted(user))
        present = _Cursor(self._index.entries(user, page=PAGE))
        different: list[UUID] = []
        left, right = await wanted.next(), await present.next()
        while left is not None or right is not None:
            if right is None or (left is not None and left.id < right.id):
                assert left is not None
                different.append(left.id)
                statistics.total_memories += 1
                left = await wanted.next()
            elif left is None or right.id < left.id:
                different.append(right.id)
                right = await present.next()
            else:
                statistics.total_memories += 1
                if full or (left.revision, left.user) != (right.revision, right.user):
                    different.append(left.id)
                else:
                    statistics.unchanged += 1
                left, right = await wanted.next(), await present.next()
            if len(different) >= PAGE:
                yield different
                different = []
        if different:
            yield different

    async def _wanted(self, user: UUID | None) -> AsyncIterator[list[Entry]]:
        after: UUID | None = None
        while True:
            async with self._database.statement() as tx:
                page = await self._source.entries(tx, user=user, after=after, limit=PAGE)
            if not page:
                return
            yield page
            after = page[-1].id

    async def _begin(self, trigger: str) -> UUID:
        async with self._database.transaction() as tx:
            run: UUID = (await tx.scalars(insert(SyncRun).values(trigger=trigger).returning(SyncRun.id))).one()
            await tx.execute(_FORGET_OLD_RUNS)
        return run

    async def _end(self, run: UUID, statistics: SyncStatistics, error: str | None) -> None:
        values = {
            "finished_at": func.now(),
            "statistics": {name: getattr(statistics, name) for name in SyncStatistics.__slots__},
            "error": error,
        }
        async with self._database.transaction() as tx:
            await tx.execute(update(SyncRun).where(SyncRun.id == run).values(values))


_FORGET_OLD_RUNS = text("DELETE FROM sync_runs WHERE started_at < now() - interval '30 days'")


async def _unlock(connection: AsyncConnection) -> None:
    if not connection.invalidated:
        await connection.execute(select(func.pg_advisory_unlock(LOCK)))


def _count(statistics: SyncStatistics, done: Delivered) -> None:
    statistics.memories_synced += done.written
    statistics.deleted += done.deleted
    statistics.embedded += done.embedded
    statistics.errors += done.failed


class _Cursor:
    """One entry at a time of a stream of pages."""

    def __init__(self, pages: AsyncIterator[list[Entry]]) -> None:
        self._pages = pages
        self._page: list[Entry] = []
        self._at = 0

    async def next(self) -> Entry | None:
        while self._at >= len(self._page):
            page = await anext(self._pages, None)
            if page is None:
                return None
            self._page, self._at = page, 0
        entry = self._page[self._at]
        self._at += 1
        return entry


__all__ = ["IndexUnavailable", "Reconciler", "SyncRunning", "SyncStatistics"]

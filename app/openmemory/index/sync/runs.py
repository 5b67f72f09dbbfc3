"""The log of sync runs: the findings and changes of each, updated while it runs."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Literal
from uuid import UUID

from sqlalchemy import func, insert, select, text, update

from openmemory.database.engine import Database, Tx
from openmemory.index.models import SyncRun

REPORT_AFTER = 1.0
"""The seconds between two progress reports of a run."""

REBUILD = "rebuild"
"""The trigger of a run that fills the collection of another model. It has its own lock."""


@dataclass(slots=True)
class SyncStatistics:
    """The findings and changes of one sync run. `seconds` is its duration."""

    total_memories: int = 0
    memories_synced: int = 0
    deleted: int = 0
    embedded: int = 0
    unchanged: int = 0
    errors: int = 0
    seconds: float = 0.0


Status = Literal["running", "success", "partial", "failed"]


@dataclass(frozen=True, slots=True)
class Run:
    """One run. `expected` is the number of memories to compare; `statistics` is the progress so far.

    `trigger`: schedule, recovery, retry, rest, mcp, or rebuild for another model's collection.
    """

    id: UUID
    trigger: str
    collection: str | None
    status: Status
    started_at: datetime
    finished_at: datetime | None
    expected: int | None
    statistics: SyncStatistics
    error: str | None


class RunLog:
    """Writes one run to `sync_runs`, from beginning to end."""

    def __init__(self, database: Database, id_: UUID) -> None:
        self._database = database
        self._id = id_
        self._started = time.perf_counter()
        self._reported = self._started
        self.statistics = SyncStatistics()

    @classmethod
    async def begin(cls, database: Database, trigger: str, *, collection: str, expected: int) -> RunLog:
        """Records the beginning of a run. The caller holds the lock of such runs, so other unfinished ones were
        interrupted."""
        async with database.transaction() as tx:
            await tx.execute(_CUT_OFF, {"rebuild": trigger == REBUILD})
            await tx.execute(_FORGET_OLD_RUNS)
            row = insert(SyncRun).values(trigger=trigger, collection=collection, expected=expected)
            id_: UUID = (await tx.scalars(row.returning(SyncRun.id))).one()
        return cls(database, id_)

    async def report(self) -> None:
        """Records the progress, if it is time to."""
        now = time.perf_counter()
        if now - self._reported >= REPORT_AFTER:
            self._reported = now
            await self._write({})

    async def end(self, error: BaseException | None = None) -> None:
        """Records the end, and the reason if it failed."""
        words = None if error is None else str(error) or type(error).__name__
        await self._write({"finished_at": func.now(), "error": words})

    async def _write(self, more: dict[str, Any]) -> None:
        self.statistics.seconds = round(time.perf_counter() - self._started, 6)
        values = {"statistics": asdict(self.statistics)} | more
        async with self._database.transaction() as tx:
            await tx.execute(update(SyncRun).where(SyncRun.id == self._id).values(values))


async def recent(tx: Tx, limit: int) -> list[Run]:
    """The newest runs, newest first."""
    rows = await tx.execute(
        select(*SyncRun.__table__.columns).order_by(SyncRun.started_at.desc(), SyncRun.id).limit(limit)
    )
    return [_run(row) for row in rows]


def _run(row: Any) -> Run:
    statistics = SyncStatistics(**(row.statistics or {}))
    status: Status = "success"
    if row.finished_at is None:
        status = "running"
    elif row.error is not None:
        status = "failed"
    elif statistics.errors:
        status = "partial"
    return Run(
        id=row.id, trigger=row.trigger, collection=row.collection, status=status, started_at=row.started_at,
        finished_at=row.finished_at, expected=row.expected, statistics=statistics, error=row.error,
    )  # fmt: skip


_CUT_OFF = text(
    """
    UPDATE sync_runs SET finished_at = now(), error = 'The process ended before the run did.'
    WHERE finished_at IS NULL AND (trigger = 'rebuild') = :rebuild
    """
)
_FORGET_OLD_RUNS = text("DELETE FROM sync_runs WHERE started_at < now() - interval '30 days'")

"""Keeps the planner's statistics up to date while many memories are written."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.database.engine import Database

AT_LEAST = 200
"""Minimum number of memories written between two runs of ANALYZE."""

SHARE = 0.2
"""Minimum number of memories written between two runs, as a share of the row count at the last run."""

_ANALYZE = text("ANALYZE memories, memory_access_logs, embeddings")
_ESTIMATE = text("SELECT greatest(reltuples, 0) FROM pg_class WHERE oid = 'memories'::regclass")


class AnalyzeAfterWrites:
    """Runs ANALYZE after many memories were written.

    Autovacuum does so too, but up to a minute late. Until then PostgreSQL plans searches among thousands of memories as
    if there were ten: measured 45 ms instead of 4 among 2,601 that were just imported.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self._writes = 0
        self._row_count = 0.0

    def wrote(self, count: int) -> None:
        """Note that `count` memories were committed."""
        self._writes += count

    async def run(self) -> bool:
        """Run ANALYZE if enough was written since the last time. Returns True if it ran."""
        if self._writes < max(AT_LEAST, SHARE * self._row_count):
            return False
        count, self._writes = self._writes, 0
        try:
            async with self._database.statement() as tx:
                await tx.execute(_ANALYZE)
                self._row_count = float(await tx.scalar(_ESTIMATE) or 0)
        except BaseException:
            self._writes += count
            raise
        return True

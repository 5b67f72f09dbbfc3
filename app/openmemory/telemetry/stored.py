"""Metrics from PostgreSQL: one statement, run on a scrape, with a short deadline."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from sqlalchemy import text

from openmemory.database.engine import Database
from openmemory.database.sql_files import load_sql
from openmemory.errors import Unavailable
from openmemory.index.sync.outbox import STUCK_AFTER
from openmemory.telemetry.process import labelled

DEADLINE = 2.0
"""Seconds that PostgreSQL has to answer a scrape."""

_SAME = " From PostgreSQL: the same at every replica."
_WINDOW = " over the runs of the last 30 days that PostgreSQL keeps, so that it can fall. The same at every replica."

_ASK = text(load_sql(__name__, "gauges", stuck_after=str(STUCK_AFTER)))


class StoredGauges:
    """Asks PostgreSQL once for all scrapes that run at the same time."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._asking: asyncio.Task[Any] | None = None

    async def families(self) -> list[Metric]:
        """Returns the metrics; without an answer in time, only that PostgreSQL is not up."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="scrape")
        # A late query is not cancelled: cancelling a statement on a server that hangs takes longer still.
        done, _ = await asyncio.wait([self._asking], timeout=DEADLINE)
        row = self._asking.result() if done else None
        up = GaugeMetricFamily(
            "openmemory_up",
            f"1 if the dependency answered this process within {DEADLINE:g} s. While PostgreSQL does not, what it knows"
            " is left out.",
            labels=("dependency",),
        )
        return [labelled(up, {("postgres",): float(row is not None)}), *(_metrics_of(row) if row is not None else ())]

    async def _ask(self) -> Any:
        try:
            async with self._database.statement() as tx:
                return (await tx.execute(_ASK)).one()
        except Unavailable:
            return None


def _metrics_of(row: Any) -> Iterator[Metric]:
    """Yields what PostgreSQL answered."""
    yield _gauge("index_outbox_entries", "Items that the vector index still has to learn of.", row.waiting)
    yield _gauge("index_outbox_stuck_entries", f"Those that failed {STUCK_AFTER} times; still tried.", row.stuck)
    yield _gauge("index_outbox_oldest_age_seconds", "Age of the oldest of them; 0: none.", row.oldest)
    waiting = "Texts and conversations of which the language model still has to make memories."
    yield _gauge("captures_waiting", waiting, row.captures_waiting)
    yield _gauge("captures_oldest_age_seconds", "Age of the oldest of them; 0: none.", row.oldest_capture)
    failed = "Those that it could not read, and is asked about again ever more rarely."
    yield _gauge("captures_failed", failed, row.captures_failed)
    last: dict[str, Any] | None = row.last
    if last is not None:
        yield _gauge("sync_last_run_timestamp_seconds", "When the last run of the sync ended.", last["at"])
        yield _gauge("sync_last_run_duration_seconds", "How long it took.", last["seconds"])
        success = "1 if it ended well, 0 if it failed or could not deliver everything."
        yield _gauge("sync_last_run_success", success, last["outcome"] == "success")
        description = "What it found and did." + _SAME
        yield labelled(
            GaugeMetricFamily("openmemory_sync_last_run_items", description, labels=("statistic",)),
            _numbers(last["statistics"]),
        )
        if row.success is not None:
            ended = "When the last run that ended well did so."
            yield _gauge("sync_last_success_timestamp_seconds", ended, row.success)
    runs = "Runs by what started them and how they ended," + _WINDOW
    yield labelled(
        GaugeMetricFamily("openmemory_sync_recent_runs", runs, labels=("trigger", "outcome")),
        {(run["trigger"], run["outcome"]): run["count"] for run in row.runs or ()},
    )
    items = "What they found and did, summed up" + _WINDOW
    yield labelled(GaugeMetricFamily("openmemory_sync_recent_items", items, labels=("statistic",)), _numbers(row.sums))


def _gauge(name: str, about: str, value: Any) -> Metric:
    return GaugeMetricFamily(f"openmemory_{name}", about + _SAME, float(value))


def _numbers(statistics: dict[str, Any] | None) -> dict[tuple[str, ...], float]:
    """Returns every number except the duration, which has its own metric in seconds."""
    return {
        (name,): float(value)
        for name, value in (statistics or {}).items()
        if isinstance(value, int | float) and name != "seconds"
    }

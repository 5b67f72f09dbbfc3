"""Every job and its period."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from app.errors import Unavailable
from app.index.port import IndexUnavailable
from app.index.reconcile import SyncRunning
from app.search import statistics
from app.services import Services

ANALYZE_EVERY = 2
"""Seconds between two looks for whether much was written."""

STATISTICS_EVERY = 120
"""Seconds between two looks for lexical statistics that are out of date."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def scheduled(services: Services) -> AsyncIterator[None]:
    """Run the jobs while the block runs. The first sync runs at once: a damaged index is repaired at start."""
    scheduler = AsyncIOScheduler(timezone=UTC)
    scheduler.add_job(
        sync,
        "interval",
        args=[services],
        id="sync_postgres_to_qdrant",
        seconds=services.settings.sync.interval,
        next_run_time=datetime.now(UTC) + timedelta(seconds=1),
        coalesce=True,
        max_instances=1,
        misfire_grace_time=None,
    )
    scheduler.add_job(
        refresh_statistics,
        "interval",
        args=[services],
        id="refresh_lexical_statistics",
        seconds=STATISTICS_EVERY,
        next_run_time=datetime.now(UTC) + timedelta(seconds=2),
        coalesce=True,
        max_instances=1,
        misfire_grace_time=None,
    )
    scheduler.add_job(
        analyze,
        "interval",
        args=[services],
        id="analyze",
        seconds=ANALYZE_EVERY,
        coalesce=True,
        max_instances=1,
        misfire_grace_time=None,
    )
    scheduler.start()
    try:
        yield
    finally:
        scheduler.shutdown(wait=False)


async def analyze(services: Services) -> None:
    """Tell PostgreSQL's planner about what was just imported."""
    try:
        await services.maintenance.run()
    except Unavailable as error:  # of which the log hears from `database`, once
        log.debug("analyze: not now: %s", error)


async def refresh_statistics(services: Services) -> None:
    """Count how common the terms of large memories are, where the last count is out of date."""
    try:
        async with services.database.statement() as tx:
            users = await statistics.due(tx)
        for user in users:
            async with services.database.transaction() as tx:
                await statistics.refresh(tx, user)
    except Unavailable as error:
        log.debug("statistics: not now: %s", error)


async def sync(services: Services) -> None:
    """Make the index equal to Postgres. Another replica's run, or a store that is away, is met again next time."""
    try:
        done = await services.reconciler.sync(trigger="schedule")
    except SyncRunning:
        log.info("sync: another run is not finished")
    except (IndexUnavailable, Unavailable) as error:
        log.warning("sync: not now: %s", error)
    else:
        log.info(
            "sync: %d memories, %d written, %d deleted, %d embedded, %d errors in %.1f s",
            done.total_memories, done.memories_synced, done.deleted, done.embedded, done.errors, done.seconds,
        )  # fmt: skip

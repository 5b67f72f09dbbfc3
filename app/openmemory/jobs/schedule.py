"""The background jobs and their intervals."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from apscheduler.schedulers.asyncio import AsyncIOScheduler

from openmemory.errors import Unavailable
from openmemory.jobs.clock import Clock
from openmemory.jobs.on_demand import OnDemand
from openmemory.jobs.syncing import Syncing
from openmemory.services import Services

ANALYZE_EVERY = 2
"""Seconds between two checks for enough writes to warrant ANALYZE."""

STATISTICS_EVERY = 120
"""Seconds between two checks for outdated lexical statistics."""

REBUILD_EVERY = 15
"""Seconds between two checks of the index generations: the delay until a replica notices a new active model."""

FIRST_VECTOR_BACKFILL, VECTOR_BACKFILL_EVERY = 20, 60
"""Seconds after a start, and between two checks for vectors of other chunks, or without token vectors."""

FIRST_COMPARISON, COMPARE_EVERY = 10, 5
"""Seconds after a start, and between two checks for memories that were not compared with those near to them."""

FIRST_LEXICAL_BACKFILL, LEXICAL_BACKFILL_EVERY = 5, 60
"""Seconds after a start, and between two checks for terms that were derived in another language."""

CLOCK_EVERY = 20.0
"""Seconds between two checks of the clock."""

CHECK_INDEX_EVERY = 5
"""Seconds between two checks of the index's watermark: one small read from the index and one from PostgreSQL."""

KEY_USE_EVERY = 30
"""Seconds between two updates of the times when keys were last used."""

PRUNE_EVERY = 3_600
"""Seconds between two removals of log entries, rate limits and idempotency keys past their retention."""

FIRST_LIFECYCLE, LIFECYCLE_EVERY = 90, 3_600
"""Seconds after a start, and between two checks for memories that have expired or are due under a policy. The
documentation says *an hour*."""

FIRST_CATEGORIZATION, CATEGORIZATION_EVERY = 20, 10
"""Seconds after a start, and between two checks for memories without a category."""

OBJECTS_EVERY = 60
"""Seconds between two checks for originals of documents that nothing refers to any more."""

WINDOWS_EVERY = 10
"""Seconds between two checks for windows of conversations that the language model has not read."""

log = logging.getLogger(__name__)


@asynccontextmanager
async def scheduled(services: Services) -> AsyncIterator[None]:
    """Runs the jobs while the block runs. The first sync starts at once, so a damaged index is repaired at startup."""
    scheduler = AsyncIOScheduler(timezone=UTC)
    syncing = Syncing(services)
    runs = JobRuns()
    categorization = OnDemand(_unless_unavailable(services.categorization.run, "categorize"), "categorize")

    async def ask_for_sync() -> None:
        syncing.ask("schedule")

    async def ask_for_categorization() -> None:
        categorization.ask()

    def add(job: Callable[[], Awaitable[object]], name: str, seconds: float, first: float | None = None) -> None:
        at = {} if first is None else {"next_run_time": datetime.now(UTC) + timedelta(seconds=first)}
        scheduler.add_job(
            runs.stoppable(_unless_unavailable(job, name)), "interval", id=name, seconds=seconds, coalesce=True,
            max_instances=1, misfire_grace_time=None, **at,
        )  # fmt: skip

    add(ask_for_sync, "sync_postgres_to_qdrant", services.settings.sync.interval, first=1)

    async def check_index() -> None:
        await services.monitor.check(services.spaces.serving)

    add(check_index, "check_index", CHECK_INDEX_EVERY, first=CHECK_INDEX_EVERY)
    add(services.rebuild.step, "rebuild_index", REBUILD_EVERY, first=1)
    add(services.vector_backfill.run, "backfill_vectors", VECTOR_BACKFILL_EVERY, first=FIRST_VECTOR_BACKFILL)
    add(services.comparison.run, "compare_memories", COMPARE_EVERY, first=FIRST_COMPARISON)
    add(services.lexical_backfill.run, "backfill_words", LEXICAL_BACKFILL_EVERY, first=FIRST_LEXICAL_BACKFILL)
    add(services.lexical_statistics.refresh_stale, "refresh_lexical_statistics", STATISTICS_EVERY, first=2)
    add(services.analyze_after_writes.run, "analyze", ANALYZE_EVERY)
    add(services.keys.note_use, "record_key_use", KEY_USE_EVERY)
    add(services.archiving.run, "archive", LIFECYCLE_EVERY, first=FIRST_LIFECYCLE)
    add(services.windows.run, "capture_conversations", WINDOWS_EVERY, first=WINDOWS_EVERY)
    add(services.conversations.expire, "expire_messages", LIFECYCLE_EVERY, first=FIRST_LIFECYCLE)
    add(services.objects.sweep, "delete_objects", OBJECTS_EVERY, first=OBJECTS_EVERY)
    add(ask_for_categorization, "categorize", CATEGORIZATION_EVERY, first=FIRST_CATEGORIZATION)
    add(partial(prune, services), "prune", PRUNE_EVERY, first=60)
    scheduler.start()
    services.categorization.start = categorization.ask
    watching = asyncio.create_task(watch_clock(scheduler, Clock()), name="clock")
    try:
        yield
    finally:
        services.categorization.start = None
        watching.cancel()
        await asyncio.wait([watching])
        scheduler.pause()
        await runs.stop()
        scheduler.shutdown(wait=False)
        await categorization.close()
        await syncing.close()


class JobRuns:
    """The runs of jobs that are under way. The scheduler itself cancels them, logs that as errors, and waits for none.

    A run that is cancelled takes its transaction back, for which it needs the database a moment longer.
    """

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()
        self._stopping = False

    def stoppable(self, job: Callable[[], Awaitable[None]]) -> Callable[[], Coroutine[Any, Any, None]]:
        """The job, except that a run that `stop` cancels ends without an error."""

        async def run() -> None:
            task = asyncio.current_task()
            assert task is not None
            self._running.add(task)
            try:
                if not self._stopping:
                    await job()
            except asyncio.CancelledError:
                if not self._stopping:
                    raise
            finally:
                self._running.discard(task)

        return run

    async def stop(self) -> None:
        """Cancels every run and returns when all have ended. None begins after that."""
        self._stopping = True
        left = set(self._running)
        while left:
            for task in left:
                task.cancel()  # a cancellation may get lost among the errors of an outage
            _, left = await asyncio.wait(left, timeout=1)


def _unless_unavailable(job: Callable[[], Awaitable[object]], name: str) -> Callable[[], Coroutine[Any, Any, None]]:
    """The job, except that it skips a run if PostgreSQL is unavailable."""

    async def run() -> None:
        try:
            await job()
        except Unavailable as error:  # `database` logs this once
            log.debug("%s: not now: %s", name, error)

    return run


async def watch_clock(scheduler: AsyncIOScheduler, clock: Clock, every: float = CLOCK_EVERY) -> None:
    """Runs every job at once after the machine's clock was set. A job due by the old time might wait for days."""
    while True:
        await asyncio.sleep(every)
        if jump := clock.jumped():
            log.warning("the clock was set by %.0f s: every job runs now", jump)
            for job in scheduler.get_jobs():
                scheduler.modify_job(job.id, next_run_time=datetime.now(UTC))


async def prune(services: Services) -> None:
    """Removes data past its retention period."""
    await services.rates.prune()
    await services.memories.prune()
    await services.bulk.prune()
    await services.audit.prune()
    await services.browser_sessions.prune()
    await services.configuration.prune()
    await services.capturing.prune()

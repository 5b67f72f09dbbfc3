"""A stop while jobs run: it waits until each has taken back what it began, and logs no error."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from sqlalchemy import text

from openmemory.index.lazy import LazyIndex
from openmemory.index.port import VectorIndex
from openmemory.jobs.schedule import JobRuns
from openmemory.services import Services

WITHIN = 20


async def stopped_in(job: Callable[[], Awaitable[None]], started: asyncio.Event) -> None:
    """Runs a job on a schedule, and stops while it runs."""
    scheduler, runs = AsyncIOScheduler(timezone=UTC), JobRuns()
    scheduler.add_job(runs.stoppable(job), "interval", seconds=3600, next_run_time=datetime.now(UTC) + timedelta(0))
    scheduler.start()
    async with asyncio.timeout(WITHIN):
        await started.wait()
        scheduler.pause()
        await runs.stop()
    scheduler.shutdown(wait=False)
    await asyncio.sleep(0)  # the scheduler notes the end of the run


async def test_a_job_that_waits_for_an_index_ends_quietly(caplog: pytest.LogCaptureFixture) -> None:
    opening, go_on = asyncio.Event(), asyncio.Event()

    async def open_slowly() -> VectorIndex:
        opening.set()
        await go_on.wait()
        raise AssertionError

    index = LazyIndex(open_slowly)

    async def job() -> None:
        await index.count()

    await stopped_in(job, opening)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []
    go_on.set()
    await index.close()


async def test_what_a_job_wrote_is_taken_back_before_the_stop_goes_on(
    services: Services, new_user: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrote, ended = asyncio.Event(), False

    async def job() -> None:
        nonlocal ended
        try:
            async with services.database.transaction() as tx:
                await tx.execute(text("INSERT INTO users (user_id) VALUES (:name)"), {"name": new_user})
                wrote.set()
                await tx.execute(text("SELECT pg_sleep(5)"))
        finally:
            ended = True

    await stopped_in(job, wrote)
    assert ended
    async with services.database.statement() as tx:
        assert await tx.scalar(text("SELECT count(*) FROM users WHERE user_id = :name"), {"name": new_user}) == 0
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR] == []


async def test_a_job_that_loses_a_cancellation_is_cancelled_again() -> None:
    started, lost = asyncio.Event(), 0

    async def job() -> None:
        nonlocal lost
        started.set()
        while lost < 2:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                lost += 1

    await stopped_in(job, started)
    assert lost == 2


async def test_a_job_that_fails_is_logged_as_before(caplog: pytest.LogCaptureFixture) -> None:
    started = asyncio.Event()

    async def job() -> None:
        started.set()
        raise ValueError("broken")

    with caplog.at_level(logging.ERROR):
        await stopped_in(job, started)
    assert any("raised an exception" in each.getMessage() for each in caplog.records)

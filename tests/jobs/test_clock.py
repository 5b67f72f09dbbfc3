"""The clock that is set, and the jobs that must not wait for it."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from openmemory.jobs.clock import Clock
from openmemory.jobs.schedule import watch_clock


class Machine:
    """A machine whose time of day can be set."""

    def __init__(self) -> None:
        self.running = 50.0
        self.set_to = 1_000_000.0

    def wall(self) -> float:
        return self.set_to + self.running

    def monotonic(self) -> float:
        return self.running


@pytest.mark.parametrize(("by", "told"), [(0, 0), (5, 0), (-5, 0), (3600, 3600), (-3600, -3600), (-3e8, -3e8)])
def test_a_clock_that_is_set_is_noticed_once_and_one_that_drifts_is_not(by: float, told: float) -> None:
    machine = Machine()
    clock = Clock(machine.wall, machine.monotonic)
    machine.running += 20
    assert clock.jumped() == 0
    machine.set_to += by
    machine.running += 20
    assert clock.jumped() == pytest.approx(told)
    machine.running += 20
    assert clock.jumped() == 0


async def test_a_job_that_was_due_by_the_old_time_runs_when_the_clock_was_set() -> None:
    ran = asyncio.Event()

    async def job() -> None:
        ran.set()

    machine = Machine()
    scheduler = AsyncIOScheduler(timezone=UTC)
    # As after the clock was set back by a year: the time of the next run is far ahead.
    scheduler.add_job(job, "interval", seconds=3600, next_run_time=datetime.now(UTC) + timedelta(days=365))
    scheduler.start()
    watching = asyncio.create_task(watch_clock(scheduler, Clock(machine.wall, machine.monotonic), every=0.01))
    try:
        machine.set_to -= 3.15e7
        async with asyncio.timeout(15):
            await ran.wait()
    finally:
        watching.cancel()
        await asyncio.wait([watching])
        scheduler.shutdown(wait=False)

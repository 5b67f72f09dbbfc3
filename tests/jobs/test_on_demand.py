from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from openmemory.jobs.on_demand import OnDemand

WITHIN = 5


@asynccontextmanager
async def on_demand(job: Callable[[], Awaitable[object]]) -> AsyncIterator[OnDemand]:
    runs = OnDemand(job, "test")
    try:
        async with asyncio.timeout(WITHIN):
            yield runs
    finally:
        await runs.close()


async def test_what_is_asked_while_it_runs_comes_after_it_once_for_all() -> None:
    started, go = asyncio.Semaphore(0), asyncio.Semaphore(0)
    running = most = runs = 0

    async def job() -> None:
        nonlocal running, most, runs
        running, runs = running + 1, runs + 1
        most = max(most, running)
        started.release()
        await go.acquire()
        running -= 1

    async with on_demand(job) as wanted:
        wanted.ask()
        await started.acquire()
        for _ in range(5):
            wanted.ask()
        go.release()
        await started.acquire()
        go.release()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (runs, running) == (2, 0)
        wanted.ask()
        await started.acquire()
        assert (runs, most) == (3, 1)


async def test_it_does_not_run_unasked() -> None:
    runs = 0

    async def job() -> None:
        nonlocal runs
        runs += 1

    async with on_demand(job) as wanted:
        for _ in range(10):
            await asyncio.sleep(0)
        assert runs == 0
        wanted.ask()
        for _ in range(10):
            await asyncio.sleep(0)
        assert runs == 1


async def test_it_runs_again_after_it_failed(caplog: pytest.LogCaptureFixture) -> None:
    failed, ended = asyncio.Event(), asyncio.Event()

    async def job() -> None:
        if not failed.is_set():
            failed.set()
            raise ValueError("the first time")
        ended.set()

    with caplog.at_level(logging.ERROR, "openmemory.jobs.on_demand"):
        async with on_demand(job) as wanted:
            wanted.ask()
            await failed.wait()
            wanted.ask()
            await ended.wait()
    [record] = caplog.records
    assert record.getMessage() == "test: failed"


async def test_it_runs_again_after_what_it_waited_for_was_cancelled() -> None:
    ended = asyncio.Event()
    waited_for = asyncio.get_running_loop().create_future()

    async def job() -> None:
        if not waited_for.done():
            waited_for.cancel()
            await waited_for
        ended.set()

    async with on_demand(job) as wanted:
        wanted.ask()
        while not waited_for.done():  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0)
        wanted.ask()
        await ended.wait()


async def test_what_runs_is_cut_off_at_the_end_even_if_it_loses_a_cancellation() -> None:
    started, ended = asyncio.Event(), False

    async def job() -> None:
        nonlocal ended
        started.set()
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended = True

    async with on_demand(job) as wanted:
        wanted.ask()
        await started.wait()
        await wanted.close()
        assert ended

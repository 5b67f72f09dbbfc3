"""PostgreSQL away in every way it can be: what is asked meanwhile, and after."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.faults.outages import PATIENCE, REQUESTS, Stage, refused_in_words, served, staged, timed
from tests.faults.wire import Mode

pytestmark = [pytest.mark.journey, pytest.mark.xdist_group("postgres-outage"), pytest.mark.timeout(300)]

Fault = Callable[[Stage], Awaitable[None]]


@pytest.fixture(scope="module")
async def stage(short_folder: Path) -> AsyncIterator[Stage]:
    async with staged(short_folder / "outage") as stage:
        yield stage


async def remembered(stage: Stage) -> str:
    """The id of a new memory."""
    answer = await REQUESTS["REST add"](stage, "")
    assert served(answer), answer.text
    return answer.json()["id"]


async def warmed(stage: Stage) -> None:
    """Open as many connections as many requests at once need."""
    answers = await asyncio.gather(*(REQUESTS["REST search"](stage, "") for _ in range(8)))
    assert all(served(answer) for answer in answers)


def wire(mode: Mode, *, cut: bool, refusal: tuple[str, str] | None = None) -> tuple[Fault, Fault]:
    async def begin(stage: Stage) -> None:
        if refusal is not None:
            stage.wire.refusal = refusal
        await stage.wire.switch(mode)
        if cut:
            await stage.wire.cut()

    async def end(stage: Stage) -> None:
        await stage.wire.switch(Mode.PASS)

    return begin, end


def server(*begins: str, ends: tuple[str, ...]) -> tuple[Fault, Fault]:
    """Statements of the superuser that begin and end a fault."""

    async def begin(stage: Stage) -> None:
        for statement in begins:
            await stage.sql(statement)

    async def end(stage: Stage) -> None:
        for statement in ends:
            await stage.sql(statement)

    return begin, end


END_SESSIONS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'openmemory'"
FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$
"""
WRITTEN = ("memory_access_logs", "memories", "sync_runs")
FAULTS: dict[str, tuple[Fault, Fault]] = {
    "refused": wire(Mode.REFUSE, cut=True),
    "hung": wire(Mode.HANG, cut=False),
    "hung, and new": wire(Mode.HANG, cut=True),
    "reset in the middle": wire(Mode.RESET, cut=False),
    "too many clients": wire(Mode.SAY, cut=True, refusal=("53300", "sorry, too many clients already")),
    "starting up": wire(Mode.SAY, cut=True, refusal=("57P03", "the database system is starting up")),
    "no connection left for the role": server(
        "ALTER ROLE openmemory CONNECTION LIMIT 0",
        END_SESSIONS,
        ends=("ALTER ROLE openmemory CONNECTION LIMIT -1",),
    ),
    "read-only": server(
        "ALTER SYSTEM SET default_transaction_read_only = on",
        "SELECT pg_reload_conf()",
        ends=("ALTER SYSTEM RESET default_transaction_read_only", "SELECT pg_reload_conf()"),
    ),
}
"""What begins and what ends each way of being away."""


@pytest.mark.parametrize("fault", FAULTS)
async def test_every_request_is_refused_in_words_and_in_time_and_the_first_one_after_is_served(
    stage: Stage, fault: str
) -> None:
    begin, end = FAULTS[fault]
    memory = await remembered(stage)
    await warmed(stage)
    before = await stage.counts()
    await begin(stage)
    try:
        answers = await asyncio.gather(*(timed(ask(stage, memory)) for ask in REQUESTS.values()))
        later = await asyncio.gather(*(timed(ask(stage, memory)) for ask in REQUESTS.values()))
        alive = await stage.http.get("/health/live")
        ready = await stage.http.get("/health/ready")
    finally:
        await end(stage)
    for name, (answer, seconds) in zip([*REQUESTS] * 2, [*answers, *later], strict=True):
        assert refused_in_words(answer), (name, answer.status_code, answer.text)
        assert seconds < PATIENCE, (name, seconds)
    assert alive.status_code == 200
    assert (ready.status_code, ready.json()["status"]) == (503, "down")
    assert await stage.counts() == before
    seconds = {}
    for name, ask in REQUESTS.items():
        answer, seconds[name] = await timed(ask(stage, memory))
        assert served(answer), (name, answer.text)
    times = [sorted(taken for _, taken in some) for some in (answers, later)]
    print(
        json.dumps(
            {
                "fault": fault,
                "503 at first, median and longest": [round(t, 3) for t in (times[0][len(times[0]) // 2], times[0][-1])],
                "503 later": [round(t, 3) for t in (times[1][len(times[1]) // 2], times[1][-1])],
                "first request after": round(next(iter(seconds.values())), 3),
            }
        )
    )

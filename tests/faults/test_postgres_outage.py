"""PostgreSQL away in every way it can be: what is asked meanwhile, and after."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import psutil
import pytest

from tests.faults.outages import (
    PATIENCE,
    REQUESTS,
    USER,
    Stage,
    refused_in_words,
    served,
    settings_for,
    staged,
    superuser,
    timed,
)
from tests.faults.wire import Mode
from tests.journeys.service import Service

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]

OUTAGES = int(os.environ.get("OPENMEMORY_TEST_OUTAGES", "70"))

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
    """Open as many connections as many requests at once need, for a user who is known."""
    await remembered(stage)
    answers = await asyncio.gather(*(REQUESTS["REST search"](stage, "") for _ in range(8)))
    assert all(served(answer) for answer in answers), [answer.text for answer in answers]


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


async def read_only(stage: Stage, value: str) -> None:
    """Make every session read-only, as those of a standby are, or writable; returns when the server has taken it."""
    await stage.sql(f"ALTER SYSTEM SET default_transaction_read_only = {value}")
    await stage.sql("SELECT pg_reload_conf()")
    deadline = time.monotonic() + 10
    while True:
        async with await superuser(stage.server) as asking:
            shown = await (await asking.execute("SHOW default_transaction_read_only")).fetchone()
        if shown == (value,):
            return
        assert time.monotonic() < deadline
        await asyncio.sleep(0.02)


END_SESSIONS = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'openmemory'"
FULL = """
CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS
    $$ BEGIN RAISE EXCEPTION 'could not extend file: No space left on device' USING ERRCODE = 'disk_full'; END $$
"""
SLOW = """
CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2.5); RETURN NULL; END $$
"""
WRITTEN = ("memory_access_logs", "memories", "sync_runs")
READS = ("REST apps", "REST grants")
"""Requests that write nothing at all: a read-only server answers them."""

UNCHANGED = ("REST restore", "MCP restore", "REST sync")
"""Requests that change nothing of a memory that is as they want it, or only count what would change."""

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
        END_SESSIONS,  # also one that was let in a moment before, and was not listed yet
        ends=("ALTER ROLE openmemory CONNECTION LIMIT -1",),
    ),
    "read-only": (lambda stage: read_only(stage, "on"), lambda stage: read_only(stage, "off")),
}
"""What begins and what ends each way of being away."""


@pytest.mark.slow
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
        harmless = fault == "read-only" and name in READS
        assert refused_in_words(answer) or (harmless and served(answer)), (name, answer.status_code, answer.text)
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


async def test_a_full_disk_refuses_what_writes_and_leaves_no_half(stage: Stage) -> None:
    memory = await remembered(stage)
    before = await stage.counts()
    await stage.sql(FULL)
    for table in WRITTEN:
        await stage.sql(f"CREATE TRIGGER full_disk AFTER INSERT ON {table} EXECUTE FUNCTION full_disk()")
    try:
        for name, ask in REQUESTS.items():
            if name not in (*READS, *UNCHANGED):
                answer, seconds = await timed(ask(stage, memory))
                assert refused_in_words(answer), (name, answer.text)
                assert seconds < PATIENCE
        assert await stage.counts() == before
    finally:
        await stage.sql("DROP FUNCTION full_disk CASCADE")
    for name, ask in REQUESTS.items():
        assert served(await ask(stage, memory)), name


async def test_a_commit_whose_answer_is_lost_is_whole_and_can_be_repeated(stage: Stage) -> None:
    await warmed(stage)
    token = os.urandom(8).hex()
    body = {"user_id": USER, "text": f"The answer to this was lost {token}.", "infer": False}
    before = await stage.counts()
    stage.wire.lose_commit_of = token.encode()
    answer = await stage.http.post("/api/v1/memories", json=body)
    assert stage.wire.lose_commit_of is None, "no such commit went over the wire"
    assert refused_in_words(answer), answer.text
    stored = await stage.counts()
    grown = {table: stored[table] - before[table] for table in before if table != "memory_access_logs"}
    assert set(grown.values()) in ({0}, {1}), grown
    again = await stage.http.post("/api/v1/memories", json=body)
    assert served(again)
    found = await stage.sql(f"SELECT count(*) FROM memories WHERE content = '{body['text']}'")
    assert found == [(1,)]


async def test_writes_during_outages_are_whole_or_absent(stage: Stage) -> None:
    """Connections are reset at any moment of any transaction while writers write; each text is stored once or never."""
    texts = [f"Note {n} of the torn transactions {os.urandom(4).hex()}." for n in range(60)]
    answers: dict[str, int] = {}

    async def write(some: list[str]) -> None:
        for each in some:
            body = {"user_id": USER, "text": each, "infer": False}
            answers[each] = (await stage.http.post("/api/v1/memories", json=body)).status_code

    writers = [asyncio.create_task(write(texts[n::6])) for n in range(6)]
    while not all(writer.done() for writer in writers):
        await stage.wire.cut()
        await asyncio.sleep(0.01)  # how long an undisturbed moment lasts, not a wait for anything
    await asyncio.gather(*writers)
    assert set(answers.values()) <= {200, 503}
    torn = """
        SELECT count(*) FROM memories AS m WHERE 1 <> (SELECT count(*) FROM memory_status_history AS h
            WHERE h.memory_id = m.id AND h.old_state IS NULL) OR 1 <> (SELECT count(*) FROM memory_revisions AS r
            WHERE r.memory_id = m.id AND r.revision = 1)
    """
    assert await stage.sql(torn) == [(0,)]
    stored = {row[0] for row in await stage.sql("SELECT content FROM memories WHERE content LIKE 'Note % torn %'")}
    assert {text for text, status in answers.items() if status == 200} <= stored


@pytest.mark.slow
async def test_a_restart_of_postgres_is_not_noticed_by_the_first_request_after_it(stage: Stage) -> None:
    await warmed(stage)
    for _ in range(3):
        await stage.server.stop()
        await stage.server.start()
        answers = await asyncio.gather(*(ask(stage, "") for ask in (REQUESTS["REST add"], REQUESTS["MCP search"])))
        assert all(served(answer) for answer in answers), [answer.text for answer in answers]


async def test_a_killed_postgres_is_back_with_all_that_was_acknowledged(stage: Stage) -> None:
    memory = await remembered(stage)
    killed, restarts = stage.server.pid, stage.server.restarts
    assert killed is not None
    os.kill(killed, signal.SIGKILL)
    started = time.perf_counter()
    # What a killed server has begun still answers for a moment.
    while not served(answer := await REQUESTS["REST get"](stage, memory)) or stage.server.restarts == restarts:
        assert served(answer) or refused_in_words(answer), answer.text
        assert time.perf_counter() - started < 30
    print(json.dumps({"fault": "killed", "recovered": round(time.perf_counter() - started, 3)}))
    assert stage.server.pid != killed


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """Stops PostgreSQL while the block runs. The postmaster is stopped first, so that it starts no process unseen."""
    postmaster = psutil.Process(pid)
    postmaster.suspend()
    family = postmaster.children(recursive=True)
    try:
        for process in family:
            with suppress(psutil.NoSuchProcess):  # a worker that has just ended
                process.suspend()
        yield
    finally:
        for process in (*family, postmaster):
            with suppress(psutil.NoSuchProcess):
                process.resume()


@pytest.mark.slow
async def test_a_stopped_postgres_is_given_up_in_time_and_used_again_when_it_goes_on(stage: Stage) -> None:
    memory = await remembered(stage)
    await warmed(stage)
    assert stage.server.pid is not None
    with stopped(stage.server.pid):
        answers = await asyncio.gather(*(timed(ask(stage, memory)) for ask in REQUESTS.values()))
    for name, (answer, seconds) in zip(REQUESTS, answers, strict=True):
        assert refused_in_words(answer), (name, answer.text)
        assert seconds < PATIENCE, (name, seconds)
    answer, seconds = await timed(REQUESTS["MCP list"](stage, memory))
    assert served(answer), answer.text
    longest = max(taken for _, taken in answers)
    print(json.dumps({"fault": "stopped", "longest 503": round(longest, 3), "first request after": round(seconds, 3)}))


@pytest.mark.slow
async def test_a_slow_statement_is_waited_for_while_the_server_lives(stage: Stage) -> None:
    """Longer than the first silence that makes the service ask for a sign of life."""
    await stage.sql(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(2); RETURN NULL; END $$"
    )
    await stage.sql("CREATE TRIGGER slow AFTER INSERT ON memories EXECUTE FUNCTION slow()")
    try:
        answer, seconds = await timed(REQUESTS["REST add"](stage, ""))
    finally:
        await stage.sql("DROP FUNCTION slow CASCADE")
    assert served(answer), answer.text
    assert seconds > 2


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_nothing_is_left_behind_by_many_outages(stage: Stage) -> None:
    memory = await remembered(stage)
    asked = [REQUESTS[name] for name in ("REST search", "REST get", "REST add", "MCP search", "MCP add", "REST list")]

    async def round_(expected: Callable[[httpx.Response], bool]) -> None:
        answers = await asyncio.gather(*(ask(stage, memory) for ask in asked))
        assert all(expected(answer) for answer in answers), [answer.text for answer in answers if not expected(answer)]

    async def outage() -> None:
        await stage.wire.switch(Mode.REFUSE)
        await stage.wire.cut()
        await round_(refused_in_words)
        await stage.wire.switch(Mode.PASS)
        await round_(served)

    for _ in range(5):
        await outage()
    before, lines, since = await left(stage), len(stage.service.err.splitlines()), time.monotonic()
    for _ in range(OUTAGES):
        await outage()
    periods = (time.monotonic() - since) / 30  # one outage in 30 s is told of, with its end
    after, said = await left(stage), len(stage.service.err.splitlines()) - lines
    print(json.dumps({"outages": OUTAGES, "before": before, "after": after, "lines of log": said}))
    allowed = {"threads": 2, "files": 12, "tasks": 6, "connections": 12, "megabytes": 10 + OUTAGES / 20}
    for what, more in allowed.items():
        assert after[what] <= before[what] + more, (what, before, after)
    assert said <= 10 + 2 * periods, stage.service.err[-3000:]


async def left(stage: Stage) -> dict[str, float]:
    """What the service holds when it has nothing to do."""
    process = stage.process()
    text = (await stage.http.get("/metrics")).text
    tasks = re.search(r"^openmemory_event_loop_tasks (\S+)", text, re.MULTILINE)
    assert tasks
    return {
        "threads": process.num_threads(),
        "files": process.num_fds(),
        "tasks": float(tasks[1]),
        "connections": await stage.connections(),
        "megabytes": round(process.memory_info().rss / 2**20, 1),
    }


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        # The second was seen once, and its cause is not known.
        (Mode.REFUSE, "Connection refused|server closed the connection unexpectedly"),
        pytest.param(Mode.HANG, "timeout expired", marks=pytest.mark.slow),
        (Mode.SAY, "the database system is starting up"),
    ],
)
async def test_a_start_without_postgres_ends_with_2_and_one_line_that_says_why(
    stage: Stage, short_folder: Path, mode: Mode, words: str
) -> None:
    stage.wire.refusal = ("57P03", "the database system is starting up")
    await stage.wire.switch(mode)
    folder = short_folder / f"start-{mode.name.lower()}"
    service = Service("--data-dir", str(folder), "--port", "0", **settings_for(stage.wire))
    try:
        assert await asyncio.to_thread(service.ended, 30) == 2
        [line] = service.err.strip().splitlines()
        assert "database.url: PostgreSQL does not answer: " in line
        assert re.search(words, line), line
        assert "Traceback" not in service.err
    finally:
        await stage.wire.switch(Mode.PASS)
        await asyncio.to_thread(service.close)


@pytest.mark.slow
async def test_a_start_on_which_postgres_falls_silent_ends_with_2_and_one_line_that_says_why(
    stage: Stage, short_folder: Path, eventually
) -> None:
    async def asked() -> bool:
        return stage.wire.silent_to is None

    stage.wire.silent_to = b"server_version_num"
    service = Service("--data-dir", str(short_folder / "start-silent"), "--port", "0", **settings_for(stage.wire))
    try:
        await eventually(asked, within=30)
        await stage.wire.switch(Mode.HANG)
        assert await asyncio.to_thread(service.ended, 60) == 2
        [line] = service.err.strip().splitlines()
        assert "database.url: PostgreSQL does not answer: " in line
    finally:
        await stage.wire.switch(Mode.PASS)
        await asyncio.to_thread(service.close)


@pytest.mark.slow
async def test_the_relay_gives_up_a_connection_on_which_it_is_not_answered(stage: Stage, eventually) -> None:
    async def listened() -> bool:
        return stage.wire.silent_to is None

    await warmed(stage)
    stage.wire.silent_to = b"LISTEN"
    await stage.sql(END_SESSIONS)
    await eventually(listened, within=30)
    stage.wire.silent_to = b"LISTEN"
    await eventually(listened, within=30)


@pytest.mark.slow
async def test_background_work_goes_on_after_an_outage_and_the_log_tells_of_it_in_two_lines(short_folder: Path) -> None:
    async with staged(short_folder / "background") as stage:
        await remembered(stage)
        for mode, enough in ((Mode.REFUSE, 5), (Mode.HANG, 1)):
            failures = await failed(stage)
            await stage.wire.switch(mode)
            await stage.wire.cut()
            while await failed(stage) < failures + enough:
                await stage.http.get("/health/ready")
            await stage.wire.switch(Mode.PASS)
        row = (await REQUESTS["REST add"](stage, "")).json()
        started = time.perf_counter()
        while True:
            body = {"user_id": USER, "query": row["content"]}
            [best, *_] = (await stage.http.post("/api/v1/memories/search", json=body)).json()["results"]
            if best["id"] == row["id"] and best["parts"]["cosine"] is not None:
                break
            assert time.perf_counter() - started < 15
            await asyncio.sleep(0.05)
        answer = await stage.http.post("/api/v1/sync")
        assert served(answer), answer.text
        said = stage.service.err.strip().splitlines()
        assert [line for line in said if "Traceback" in line] == []
        about = [line for line in said if "PostgreSQL does not answer" in line or "PostgreSQL answers again" in line]
        assert len(about) == 2, said
        assert "PostgreSQL does not answer: " in about[0]
        assert "PostgreSQL answers again, after " in about[1]
        assert len(said) <= 8, said


async def failed(stage: Stage) -> float:
    """How often the service has met no PostgreSQL."""
    text = (await stage.http.get("/metrics")).text
    found = re.search(r"^openmemory_database_failures_total (\S+)", text, re.MULTILINE)
    assert found
    return float(found[1])

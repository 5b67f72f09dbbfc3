from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import anyio
import pytest
from sqlalchemy import exc, text

from openmemory.config.settings import DatabaseSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.errors import Unavailable
from openmemory.services import Services
from tests.breaking import cut_in_the_middle, end, end_all_of, named

PID = CompiledStatement(text("SELECT pg_backend_pid()"), plain=True)
SLEEP = CompiledStatement(text("SELECT pg_backend_pid() FROM pg_sleep(0.05)"), plain=True)
NEVER = CompiledStatement(text("SELECT 1 FROM pg_sleep(3600)"), plain=True)
WRONG = CompiledStatement(text("SELECT 1 / (SELECT 0)"), plain=True)
POOL = 4


@pytest.fixture
async def database(services: Services) -> AsyncIterator[Database]:
    """A database of its own name with a small pool."""
    database = named(services, "test-lending", DatabaseSettings(pool_size=POOL, pool_timeout=10))
    yield database
    await database.close()


async def backend(database: Database, statement: CompiledStatement = PID) -> int:
    async with database.statement() as tx:
        [(pid,)] = await statement.rows(tx, {})
    return int(pid)


def use(database: Database) -> tuple[int, int]:
    """Connections for single statements: in use, and not."""
    found = database.pools()["statements"]
    return found.used, found.idle


async def test_who_comes_later_gets_the_connection_that_was_used_last(database: Database) -> None:
    first = await backend(database)
    assert use(database) == (0, 1)
    async with database.statement() as tx:
        [(pid,)] = await PID.rows(tx, {})
        assert pid == first
        assert use(database) == (1, 0)
        assert await backend(database) != first
    assert await backend(database) == first
    assert use(database) == (0, 2)


async def test_a_kept_connection_that_ended_is_replaced_without_a_failure(
    database: Database, services: Services
) -> None:
    before = await asyncio.gather(*(backend(database, SLEEP) for _ in range(2)))
    assert use(database) == (0, 2)
    await end_all_of(services, "test-lending")
    after = await asyncio.gather(*(backend(database, SLEEP) for _ in range(2)))
    assert not set(before) & set(after)
    assert database.failures == 0


async def test_a_kept_connection_is_suspect_once_a_younger_one_broke(database: Database, services: Services) -> None:
    before = await backend(database)

    with pytest.raises(Unavailable):
        await cut_in_the_middle(database, services)
    assert await backend(database) != before


async def test_a_kept_connection_that_is_old_is_opened_anew(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = await backend(database)
    monkeypatch.setattr("openmemory.database.engine._OLD", 0)
    assert await backend(database) != before


async def test_more_than_there_are_connections_take_turns(database: Database) -> None:
    async with asyncio.timeout(30):
        pids = await asyncio.gather(*(backend(database, SLEEP) for _ in range(10 * POOL)))
    assert len(set(pids)) == POOL
    assert use(database) == (0, POOL)


async def test_the_first_connection_that_is_given_back_goes_to_who_waits(database: Database) -> None:
    async with AsyncExitStack() as held:
        first = AsyncExitStack()
        await first.enter_async_context(database.statement())
        for _ in range(POOL - 1):
            await held.enter_async_context(database.statement())
        waiting = asyncio.ensure_future(backend(database))
        await asyncio.sleep(0)
        await first.aclose()
        async with asyncio.timeout(5):
            assert await waiting > 0


@pytest.mark.slow
@pytest.mark.parametrize("limits", [{"pool_timeout": 1, "connect_timeout": 30}, {"connect_timeout": 1}])
async def test_who_waits_too_long_for_a_connection_is_told_so(services: Services, limits: dict[str, int]) -> None:
    database = Database(services.database.url, DatabaseSettings(pool_size=2, **limits))
    try:
        for lent in (database.statement, database.transaction):
            async with lent(), lent():
                with pytest.raises(Unavailable, match="no free connection"):
                    async with lent():
                        pass
            async with lent() as tx:
                assert await tx.scalar(text("SELECT 1")) == 1
    finally:
        await database.close()


@pytest.mark.slow
async def test_who_waits_goes_on_waiting_while_others_give_connections_back(services: Services) -> None:
    database = Database(services.database.url, DatabaseSettings(pool_size=2, connect_timeout=1, pool_timeout=30))

    async def work() -> None:
        async with database.transaction() as tx:
            await tx.execute(text("SELECT pg_sleep(0.3)"))

    try:
        async with asyncio.timeout(20):
            await asyncio.gather(*(work() for _ in range(10)))  # the last one waits 1.2 seconds
    finally:
        await database.close()


async def test_who_gives_up_waiting_takes_no_connection_with_them(services: Services) -> None:
    database = Database(services.database.url, DatabaseSettings(pool_size=1))
    try:
        async with AsyncExitStack() as held:
            await held.enter_async_context(database.transaction())
            waiting = [asyncio.ensure_future(_one(database)) for _ in range(5)]
            await asyncio.sleep(0)
            for task in waiting[::2]:
                task.cancel()
        for task in waiting[1::2]:
            assert await task == 1
        async with asyncio.timeout(5):
            assert await _one(database) == 1
    finally:
        await database.close()


async def _one(database: Database) -> Any:
    async with database.transaction() as tx:
        return await tx.scalar(text("SELECT 1"))


async def test_a_connection_on_which_something_failed_can_be_used_again(database: Database) -> None:
    before = await backend(database)
    for _ in range(3 * POOL):
        with pytest.raises(exc.DBAPIError, match="division by zero"):
            await backend(database, WRONG)
    assert await backend(database) == before
    assert use(database) == (0, 1)


async def test_no_connection_is_lost_by_who_is_cancelled(database: Database, eventually) -> None:
    async def used() -> bool:
        return use(database)[0] == 1

    for _ in range(3 * POOL):
        waiting = asyncio.ensure_future(backend(database, NEVER))
        await eventually(used)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
    async with asyncio.timeout(30):
        await asyncio.gather(*(backend(database, SLEEP) for _ in range(4 * POOL)))
    assert use(database)[0] == 0


async def test_what_sqlalchemy_executes_and_what_is_prepared_take_turns_on_a_connection(database: Database) -> None:
    found = []
    for _ in range(3):
        async with database.statement() as tx:
            found.append(await tx.scalar(text("SELECT pg_backend_pid()")))
            assert tx.in_transaction()
        found.append(await backend(database))
    assert len(set(found)) == 1


async def test_one_that_broke_in_use_is_not_lent_again(database: Database, services: Services) -> None:
    async def cut() -> None:
        async with database.statement() as tx:
            [(mine,)] = await PID.rows(tx, {})
            await end(services, mine)
            await PID.rows(tx, {})

    for _ in range(2 * POOL + 1):
        with pytest.raises(Unavailable, match="does not answer"):
            await cut()
    assert await backend(database) > 0
    assert use(database)[0] == 0


async def test_a_search_that_is_given_up_is_no_error_in_the_log(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(4):
        with anyio.move_on_after(0.1):
            await backend(database, NEVER)
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert use(database)[0] == 0
    assert await backend(database) > 0

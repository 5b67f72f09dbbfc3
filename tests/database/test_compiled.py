from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import Text, Uuid, bindparam, exc, literal, select, text

from openmemory.config.settings import DatabaseSettings
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.memories.models import Memory
from openmemory.memories.state import State
from openmemory.services import Services


@pytest.fixture
async def database(services: Services) -> AsyncIterator[Database]:
    """Pools of the test's own on the shared server."""
    opened = Database(services.database.url, DatabaseSettings())
    yield opened
    await opened.close()


async def test_rows_have_the_names_of_the_columns_and_values_reach_the_right_places(database: Database) -> None:
    statement = CompiledStatement(
        select(
            bindparam("first", type_=Text).label("one"),
            bindparam("second", type_=Text).label("two"),
            bindparam("first", type_=Text).label("again"),
            literal(7).label("fixed"),
        )
    )
    async with database.statement() as tx:
        [row] = await statement.rows(tx, {"second": "b", "first": "a % $1 :x", "unused": 1})
    assert (row.one, row.two, row.again, row.fixed) == ("a % $1 :x", "b", "a % $1 :x", 7)


async def test_values_are_converted_as_their_types_say(database: Database) -> None:
    statement = CompiledStatement(
        select(Memory.id).where(Memory.state == State.PAUSED, Memory.id == bindparam("id", type_=Uuid))
    )
    async with database.statement() as tx:
        assert await statement.rows(tx, {"id": "00000000-0000-0000-0000-000000000000"}) == []


def test_a_statement_whose_text_depends_on_its_values_is_refused() -> None:
    with pytest.raises(ValueError, match="depends on its parameters"):
        CompiledStatement(select(Memory.id).where(Memory.state.in_([State.ACTIVE, State.PAUSED])))


async def test_a_failing_statement_is_what_sqlalchemy_would_raise_and_tells_no_value(database: Database) -> None:
    statement = CompiledStatement(select(text("1 / length(:secret)").bindparams(bindparam("secret", type_=Text))))
    async with database.statement() as tx:
        with pytest.raises(exc.DBAPIError) as raised:
            await statement.rows(tx, {"secret": ""})
        assert raised.value.connection_invalidated is False
        assert [tuple(row) for row in await statement.rows(tx, {"secret": "a"})] == [(1,)]


async def test_when_the_server_cuts_all_connections_of_the_pool_every_statement_is_answered_on_a_new_one(
    database: Database,
) -> None:
    statement = CompiledStatement(select(text("pg_backend_pid() AS pid")))

    async def pid(together: asyncio.Barrier) -> int:
        async with database.statement() as tx:
            await together.wait()
            [row] = await statement.rows(tx, {})
            return int(row.pid)

    together = asyncio.Barrier(3)
    pids = set(await asyncio.gather(*(pid(together) for _ in range(3))))
    assert len(pids) == 3
    async with database.transaction() as tx:
        await tx.execute(
            text("SELECT pg_terminate_backend(pid, 5000) FROM unnest(CAST(:pids AS int[])) pid"), {"pids": list(pids)}
        )
    for _ in range(3):
        assert await pid(asyncio.Barrier(1)) not in pids


async def test_a_cancelled_statement_leaves_a_connection_that_works(database: Database) -> None:
    slow = CompiledStatement(select(text("pg_sleep(60)")))
    quick = CompiledStatement(select(literal(1).label("one")))
    async with database.statement() as tx:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await slow.rows(tx, {})
    for _ in range(3):
        async with database.statement() as tx:
            [row] = await quick.rows(tx, {})
            assert row.one == 1

"""A server that grants few connections: pools fit into what it grants, and callers wait in line for the good ones."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, closing

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from openmemory.config.settings import DatabaseSettings
from openmemory.database.engine import Database
from openmemory.database.granted import pool_size
from openmemory.errors import Unavailable
from tests.living import living
from tests.migrations.servers import server


def limit(url: str, statement: str) -> None:
    """Change what the server grants, as its superuser."""
    address = make_url(url).set(drivername="postgresql", username="postgres", database="postgres")
    with closing(psycopg.connect(address.render_as_string(hide_password=False), autocommit=True)) as connection:
        connection.execute(statement.encode())


@pytest.fixture(scope="module")
async def url() -> AsyncIterator[str]:
    async with living(server()) as address:
        yield address


@pytest.fixture
async def few(url: str) -> AsyncIterator[Database]:
    """A database that grants six connections, with pools that are meant for thirty."""
    limit(url, "ALTER ROLE openmemory CONNECTION LIMIT 6")
    database = Database(url, DatabaseSettings())
    yield database
    await database.close()


async def work(database: Database) -> None:
    async with database.transaction() as tx:
        await tx.execute(text("SELECT pg_sleep(0.01)"))
    for opening in (database.statement, database.planned):
        async with opening() as tx:
            await tx.execute(text("SELECT pg_sleep(0.01)"))


@pytest.mark.slow
async def test_a_hundred_callers_are_served_by_six_connections(few: Database, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "openmemory.database.engine"):
        await asyncio.gather(*(work(few) for _ in range(100)))
    assert few.failures == 0
    assert [record.getMessage() for record in caplog.records] == [
        "PostgreSQL grants no further connection; requests wait for those that are open"
    ]


async def test_what_one_pool_keeps_for_later_is_given_to_another(few: Database) -> None:
    async def idle(tx_of: str) -> None:
        async with getattr(few, tx_of)() as tx:
            await tx.execute(text("SELECT pg_sleep(0.2)"))

    await asyncio.gather(*(idle("statement") for _ in range(6)))
    assert few.pools()["statements"].idle == 6
    await asyncio.gather(*(idle("transaction") for _ in range(4)))
    use = few.pools()
    assert use["transactions"].idle == 4
    assert use["statements"].idle <= 2  # a server that is slow to let a connection go is given another one


async def test_who_gets_no_connection_in_time_is_told_so(url: str) -> None:
    limit(url, "ALTER ROLE openmemory CONNECTION LIMIT 1")
    holder, waiter = Database(url, DatabaseSettings()), Database(url, DatabaseSettings(pool_timeout=1))
    async with AsyncExitStack() as stack:
        stack.push_async_callback(holder.close)
        stack.push_async_callback(waiter.close)
        async with holder.transaction():
            with pytest.raises(Unavailable, match="no free connection"):
                await work(waiter)
        await holder.close()
        await work(waiter)  # its whole pool is usable again
        assert waiter.pools()["transactions"].used == 0


@pytest.mark.parametrize(
    ("statement", "processes", "expected"),
    [
        ("ALTER ROLE openmemory CONNECTION LIMIT -1", 1, 10),
        ("ALTER ROLE openmemory CONNECTION LIMIT 12", 1, 2),
        ("ALTER ROLE openmemory CONNECTION LIMIT 24", 1, 6),
        ("ALTER ROLE openmemory CONNECTION LIMIT 24", 2, 3),
        ("ALTER ROLE openmemory CONNECTION LIMIT 5", 4, 1),
        ("ALTER DATABASE openmemory CONNECTION LIMIT 15", 1, 3),
    ],
)
async def test_pools_are_as_large_as_the_server_grants(
    url: str, statement: str, processes: int, expected: int, caplog: pytest.LogCaptureFixture
) -> None:
    limit(url, "ALTER ROLE openmemory CONNECTION LIMIT -1")
    limit(url, statement)
    database = Database(url, DatabaseSettings())
    try:
        with caplog.at_level(logging.WARNING, "openmemory.database.granted"):
            assert await pool_size(database, DatabaseSettings(), processes=processes) == expected
    finally:
        await database.close()
    assert ("database.pool_size" in caplog.text) == (expected < 10)


async def test_the_connections_of_other_users_are_taken_off(url: str) -> None:
    limit(url, "ALTER DATABASE openmemory CONNECTION LIMIT -1")
    limit(url, "ALTER ROLE openmemory CONNECTION LIMIT -1")
    address = make_url(url).set(drivername="postgresql", username="postgres", database="postgres")
    database = Database(url, DatabaseSettings())
    others = [psycopg.connect(address.render_as_string(hide_password=False)) for _ in range(20)]
    try:
        # Of 47 that the server grants, 27 are left.
        assert await pool_size(database, DatabaseSettings(), processes=1) == 7
    finally:
        for other in others:
            other.close()
        await database.close()

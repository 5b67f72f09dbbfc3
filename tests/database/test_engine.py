from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator

import psycopg
import pytest
from sqlalchemy import text
from sqlalchemy.engine import make_url

from openmemory.config.settings import DatabaseSettings
from openmemory.database.engine import Database, reaching
from openmemory.database.liveness import LivenessCheck
from openmemory.errors import Unavailable
from openmemory.services import Services
from tests.breaking import cut_in_the_middle, end_all_of, named

# What they would be over TCP: on a unix socket they are shown as 0.
SESSION = (
    "SELECT name, reset_val FROM pg_settings WHERE name ILIKE 'tcp_keepalives%' OR name IN ('work_mem', 'TimeZone')"
)


@pytest.fixture
async def database(services: Services) -> AsyncIterator[Database]:
    """A database of its own name, so that a test can end its connections and nobody else's."""
    database = named(services, "test-database")
    yield database
    await database.close()


@pytest.fixture
async def refused() -> AsyncIterator[Database]:
    """A database at an address where nobody listens."""
    database = Database("postgresql://nobody:secret@127.0.0.1:1/none", DatabaseSettings(connect_timeout=2))
    yield database
    await database.close()


async def backend(database: Database) -> int:
    async with database.transaction() as tx:
        return int(await tx.scalar(text("SELECT pg_backend_pid()")) or 0)


async def test_a_connection_that_ended_in_the_pool_is_replaced_without_a_failure(
    database: Database, services: Services
) -> None:
    before = await backend(database)
    await end_all_of(services, "test-database")
    assert await backend(database) != before
    assert database.failures == 0


async def test_a_connection_that_breaks_in_use_makes_the_older_ones_of_both_pools_suspect(
    database: Database, services: Services
) -> None:
    async with database.statement() as tx:
        statement_before = await tx.scalar(text("SELECT pg_backend_pid()"))

    with pytest.raises(Unavailable):
        await cut_in_the_middle(database, services)
    async with database.statement() as tx:
        assert await tx.scalar(text("SELECT pg_backend_pid()")) != statement_before
    assert database.failures == 1


async def test_an_outage_is_told_once_without_the_password(refused: Database, caplog) -> None:
    with caplog.at_level(logging.WARNING, "openmemory.database.engine"):
        for _ in range(5):
            with pytest.raises(Unavailable, match="does not answer"):
                async with refused.transaction():
                    pass
    [record] = caplog.records
    assert record.getMessage().startswith("PostgreSQL does not answer: ")
    assert "Connection refused" in record.getMessage()
    assert "secret" not in caplog.text
    assert refused.failures == 5


async def test_the_return_of_postgres_is_told_if_its_outage_was(database: Database, services: Services, caplog) -> None:
    async def break_one() -> None:
        async with database.transaction() as tx:
            await tx.execute(text("SELECT pg_terminate_backend(pg_backend_pid())"))

    with caplog.at_level(logging.WARNING, "openmemory.database.engine"):
        for _ in range(3):
            with pytest.raises(Unavailable):
                await break_one()
            await backend(database)
    told = [record.getMessage() for record in caplog.records if record.name == "openmemory.database.engine"]
    assert len(told) == 2, told
    assert told[0].startswith("PostgreSQL does not answer: ")
    assert told[1].startswith("PostgreSQL answers again, after ")


def test_what_the_address_says_of_its_connections_counts() -> None:
    url = make_url("postgresql://db/x?tcp_user_timeout=500&target_session_attrs=any&connect_timeout=3")
    options = reaching(url, 5)
    assert not options.keys() & url.query.keys()
    assert options["keepalives_interval"] == 5


async def test_every_connection_asks_the_server_to_notice_soon_that_its_machine_vanished(services: Services) -> None:
    url = make_url(services.database.url).update_query_dict({"options": "-c work_mem=5MB"})
    database = Database(url.render_as_string(hide_password=False), services.settings.database)
    try:
        dedicated = await database.dedicated()
        answer = await dedicated.execute(SESSION)
        found = [dict(await answer.fetchall())]
        await dedicated.close()
        for opening in (database.transaction, database.statement):
            async with opening() as tx:
                found.append(dict((await tx.execute(text(SESSION))).all()))
    finally:
        await database.close()
    expected = {"tcp_keepalives_idle": "30", "tcp_keepalives_interval": "10", "tcp_keepalives_count": "3"}
    assert found == [expected | {"work_mem": "5120", "TimeZone": "UTC"}] * 3


async def test_the_pools_tell_how_many_connections_they_hold(database: Database) -> None:
    limit = DatabaseSettings().pool_size
    async with database.transaction() as tx:
        await tx.execute(text("SELECT 1"))
        use = database.pools()["transactions"]
        assert (use.used, use.idle, use.limit) == (1, 0, limit)
    use = database.pools()["transactions"]
    assert (use.used, use.idle) == (0, 1)


async def test_many_who_wait_ask_for_a_sign_of_life_once(services: Services) -> None:
    asked = 0
    url = make_url(services.database.url).set(drivername="postgresql").render_as_string(hide_password=False)

    async def connect() -> psycopg.AsyncConnection:
        nonlocal asked
        asked += 1
        return await psycopg.AsyncConnection.connect(url)

    heart = LivenessCheck(connect)
    assert await asyncio.gather(*(heart.beats() for _ in range(50))) == [True] * 50
    assert asked == 1
    assert await heart.beats()
    assert asked == 2


async def test_a_server_that_refuses_in_words_lives_and_one_that_refuses_without_does_not(services: Services) -> None:
    where = make_url(services.database.url).set(drivername="postgresql")

    def connecting(url: str) -> LivenessCheck:
        return LivenessCheck(lambda: psycopg.AsyncConnection.connect(url))

    nobody = where.set(database="no-such-database").render_as_string(hide_password=False)
    assert await connecting(nobody).beats() is True
    assert await connecting("postgresql://nobody@127.0.0.1:1/none").beats() is False


@pytest.mark.slow
async def test_a_statement_of_a_long_transaction_may_take_longer_than_others(services: Services) -> None:
    database = Database(services.database.url, DatabaseSettings(statement_timeout=1, connect_timeout=1))
    try:
        async with database.long_transaction(10) as tx:
            await tx.execute(text("SELECT pg_sleep(3.5)"))
        with pytest.raises(Unavailable):
            async with database.transaction() as tx:
                await tx.execute(text("SELECT pg_sleep(3.5)"))
    finally:
        await database.close()

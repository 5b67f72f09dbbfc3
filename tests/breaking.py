"""Connections of a database that a test breaks, and nobody else's."""

from __future__ import annotations

from sqlalchemy import text
from sqlalchemy.engine import make_url

from openmemory.config.settings import DatabaseSettings
from openmemory.database.engine import Database
from openmemory.services import Services


def named(services: Services, name: str, settings: DatabaseSettings | None = None) -> Database:
    """A database whose connections bear this name, so that they can be told from all others."""
    url = make_url(services.database.url).update_query_dict({"application_name": name})
    return Database(url.render_as_string(hide_password=False), settings or services.settings.database)


async def end_all_of(services: Services, name: str) -> None:
    """End the connections of this name."""
    ended = text("SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = :name")
    async with services.database.transaction() as tx:
        await tx.execute(ended, {"name": name})


async def end(services: Services, pid: int | None) -> None:
    """End the connection that this process of PostgreSQL serves."""
    async with services.database.transaction() as tx:
        await tx.execute(text("SELECT pg_terminate_backend(:pid, 5000)"), {"pid": pid})


async def cut_in_the_middle(database: Database, services: Services) -> None:
    """Begin a transaction and go on with it after its connection has ended."""
    async with database.transaction() as tx:
        await end(services, await tx.scalar(text("SELECT pg_backend_pid()")))
        await tx.execute(text("SELECT 1"))

"""Runs migrations, one replica at a time, never waiting long for a lock that the service holds."""

from __future__ import annotations

import os

from sqlalchemy import text

from alembic import context
from openmemory.schema.tables import metadata

LOCK = 0x6F6D6D67


def url() -> str:
    """The database that the program names, or OPENMEMORY_DATABASE_URL for the command line."""
    from openmemory.database.engine import normal_url

    return context.config.attributes.get("url") or normal_url(os.environ["OPENMEMORY_DATABASE_URL"])


def run() -> None:
    """Bring the database to the wanted revision in one transaction."""
    from openmemory.schema.migrate import engine_of

    engine = engine_of(url())
    with engine.begin() as connection:
        connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": LOCK})
        connection.execute(text("SET LOCAL lock_timeout = '10s'"))
        context.configure(connection=connection, target_metadata=metadata, compare_type=True)
        context.run_migrations()
    engine.dispose()


run()

"""One PostgreSQL, one index: marks are taken once, so that a second index beside the first would miss what it took."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import psycopg

from app.database import Database
from app.errors import SetupError

LOCK = 0x6F6D6978
"""Key of the advisory lock. Services with a Qdrant server share it; one with the built-in index has it alone."""


@asynccontextmanager
async def claimed(database: Database, *, built_in: bool) -> AsyncIterator[None]:
    """Claim to serve the database with this index, until the block or this process ends.

    Raises:
        SetupError: a service serves it with another index.
        Unavailable: PostgreSQL does not answer.
    """
    connection = await database.dedicated()
    try:
        function = b"pg_try_advisory_lock" if built_in else b"pg_try_advisory_lock_shared"
        [(free,)] = await (await connection.execute(b"SELECT " + function + b"(%s)", [LOCK])).fetchall()
        if not free:
            raise SetupError(_REFUSED)
        yield
    finally:
        with suppress(psycopg.Error):  # the connection may be gone, and the lock with it
            await connection.execute(b"SELECT pg_advisory_unlock_all()")
        await connection.close()


_REFUSED = (
    "database.url: another service uses this database with a vector index of its own, which would miss what this one "
    "takes in; let both use one Qdrant (qdrant.url), or run one service with --workers"
)

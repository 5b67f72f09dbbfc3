"""Fits the connection pools into what a server grants."""

from __future__ import annotations

import logging

from sqlalchemy import text

from openmemory.config.settings import DatabaseSettings
from openmemory.database.engine import Database

log = logging.getLogger(__name__)

_SPARE = 4
"""Connections for schema maintenance, locks and the check that the server answers."""

_GRANTED = text(
    """
    SELECT least(
        current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
            - coalesce(current_setting('reserved_connections', true)::int, 0)
            - (SELECT count(*) FROM pg_stat_activity AS a WHERE a.usesysid <> r.oid),
        nullif(r.rolconnlimit, -1),
        nullif(d.datconnlimit, -1)
    )
    FROM pg_roles AS r, pg_database AS d WHERE r.rolname = current_user AND d.datname = current_database()
    """
)


def most_connections(settings: DatabaseSettings, *, processes: int) -> int:
    """The maximum number of connections that these processes may have open: three pools and one for LISTEN each."""
    return processes * (3 * settings.pool_size + 1) + _SPARE


async def pool_size(database: Database, settings: DatabaseSettings, *, processes: int) -> int:
    """Returns how many connections each pool of these processes may have: `pool_size`, or as many as the server grants
    beside its other users.

    Raises:
        Unavailable: PostgreSQL does not answer.
    """
    async with database.statement() as tx:
        limit = int((await tx.execute(_GRANTED)).scalar_one())
    size = max(1, min(settings.pool_size, ((limit - _SPARE) // processes - 1) // 3))
    if size < settings.pool_size:
        log.warning(
            "PostgreSQL grants %d connections, so each pool has %d of them and not %d (database.pool_size)",
            limit, size, settings.pool_size,
        )  # fmt: skip
    return size

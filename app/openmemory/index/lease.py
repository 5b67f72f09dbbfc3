"""The index lease: one PostgreSQL has one index, because an outbox entry is delivered once.

An advisory lock decides who may have the lease, and the row of `index_lease` names the holder. The lock ends with its
connection, so if PostgreSQL restarts, another service may get the lock first. Then the row names that one. Every claim
of outbox entries checks the row, and every process of a service compares it with the holder that it has recorded.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from uuid import uuid4

import psycopg

from openmemory.database.engine import Database
from openmemory.errors import SetupError
from openmemory.index.port import OwnedByAnother

log = logging.getLogger(__name__)

LOCK = 0x6F6D6978
"""The key of the advisory lock. Services with a Qdrant server share it; one with the built-in index holds it
exclusively."""

SERVER = "server"
"""The holder name that all services with a Qdrant server share."""

LOST = "another service uses this database with a vector index of its own"

_EVERY = 2.0
"""The seconds between two checks of the connection that holds the lock."""

_FIRST_PAUSE = 0.1
"""The seconds before the first attempt to take the lease again. The pause doubles up to `_EVERY`."""


@dataclass(slots=True)
class Lease:
    """The right to use the index, as one process last read it. `holder` is None if no other service can use this
    database."""

    holder: str | None = None
    is_elsewhere: bool = False
    """True if another service had the lease at the last check."""
    foreign: OwnedByAnother | None = None
    """The reason why the collection in use is another's, if it is."""

    @property
    def lost(self) -> bool:
        """Returns True if the index must be left alone."""
        return self.refusal is not None

    @property
    def refusal(self) -> str | None:
        """The reason why the index must be left alone, or None."""
        if self.is_elsewhere:
            return LOST
        return None if self.foreign is None else str(self.foreign)


@asynccontextmanager
async def leased(database: Database, *, built_in: bool) -> AsyncIterator[str]:
    """Holds the lease until the block ends, and takes it again if its connection is lost; yields the holder.

    Raises:
        SetupError: a service uses the database with another index.
        Unavailable: PostgreSQL does not answer.
    """
    lock = _LockHolder(database, built_in=built_in)
    await lock.acquire()
    keeping = asyncio.create_task(lock.keep(), name="index-lease")
    try:
        yield lock.holder
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
        await lock.release()


class _LockHolder:
    """Holds the lock on a connection of its own."""

    def __init__(self, database: Database, *, built_in: bool) -> None:
        self.holder = uuid4().hex if built_in else SERVER
        self._database = database
        self._lock = b"pg_try_advisory_lock" if built_in else b"pg_try_advisory_lock_shared"
        self._connection: psycopg.AsyncConnection | None = None
        self._warned = False

    async def acquire(self) -> None:
        if not await self._acquire(await self._database.dedicated()):
            raise SetupError(_REFUSED)

    async def keep(self) -> None:
        pause = _EVERY
        while True:
            await asyncio.sleep(pause)
            try:
                if self._connection is not None:
                    async with asyncio.timeout(_EVERY):
                        await self._connection.execute(_WRITE, [self.holder, self.holder])
                    continue
                pause = min(_EVERY, 2 * pause)
                if await self._acquire(await self._database.dedicated_quietly()):
                    log.log(logging.INFO if self._warned else logging.DEBUG, "the index lease is held again")
                    pause, self._warned = _EVERY, False
                elif not self._warned:
                    self._warned = True
                    log.warning("the index lease cannot be taken again yet: its lock is held on another connection")
            except (psycopg.Error, OSError, TimeoutError) as error:
                log.debug("the connection of the index lease ended: %s", error)
                if self._connection is not None:
                    pause = _FIRST_PAUSE
                    await self.release()

    async def release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            with suppress(psycopg.Error, TimeoutError):  # the connection may be lost, and the lock with it
                async with asyncio.timeout(_EVERY):
                    await connection.execute(b"SELECT pg_advisory_unlock_all()")
            await connection.close()

    async def _acquire(self, connection: psycopg.AsyncConnection) -> bool:
        """Takes the lock on this connection, and writes the holder of the lease. Returns False if another service has
        the lock."""
        try:
            [(free,)] = await (await connection.execute(b"SELECT " + self._lock + b"(%s)", [LOCK])).fetchall()
            if free:
                await connection.execute(_WRITE, [self.holder, self.holder])
                self._connection = connection
            return bool(free)
        finally:
            if self._connection is not connection:
                await connection.close()


_WRITE = b"""
    INSERT INTO index_lease (holder)
    SELECT %s WHERE NOT EXISTS (SELECT FROM index_lease WHERE holder = %s)
    ON CONFLICT (id) DO UPDATE SET holder = excluded.holder, taken_at = now()
"""
"""Writes nothing if the row already names this holder."""

_REFUSED = (
    "database.url: another service uses this database with a vector index of its own, which would miss what this one "
    "takes in; let both use one Qdrant (qdrant.url), or run one service with --workers"
)

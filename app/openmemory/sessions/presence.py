"""A PostgreSQL connection that proves that this process is alive and receives notifications from other processes."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Awaitable, Callable
from contextlib import suppress

import psycopg

from openmemory.database.engine import Database
from openmemory.errors import Unavailable
from openmemory.sessions.storage import CLASS, channel

log = logging.getLogger(__name__)

TICK = 5.0
"""Seconds between two checks for missed notifications and for a working connection."""

_LONGEST_PAUSE = 1.0
"""Seconds between two attempts to connect."""


class Presence:
    """Holds the lock on this process's `number` and listens on its channel. Reconnects if the connection ends.

    `connected` is called after every connect, `heard` with every payload, `tick` every `TICK` seconds.
    """

    def __init__(
        self,
        database: Database,
        *,
        connected: Callable[[], Awaitable[None]],
        heard: Callable[[str], None],
        tick: Callable[[], Awaitable[None]],
    ) -> None:
        self.number = 0
        self.up = asyncio.Event()
        self._database = database
        self._connected, self._heard, self._tick = connected, heard, tick
        self._task: asyncio.Task[None] | None = None
        self._connection: psycopg.AsyncConnection | None = None

    async def start(self) -> None:
        """Connects, and stays connected in the background until `stop`.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        try:
            connection = await self._connect()
            try:
                # Another number is drawn if a process already uses this one.
                while not await self._lock(connection, number := secrets.randbelow(2**31)):
                    continue
                self.number = number
                await self._listen(connection)
                self.up.set()
                await self._connected()
            except BaseException:
                await connection.close()
                raise
        except TimeoutError:
            raise Unavailable("PostgreSQL does not answer.", code="database_unavailable") from None
        self._connection = connection
        self._task = asyncio.create_task(self._keep(connection), name="relay-presence")

    async def stop(self) -> None:
        """Disconnects. From now on, this process counts as dead."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        if self._connection is not None:  # the task may have ended before it began
            await self._connection.close()

    async def _keep(self, connection: psycopg.AsyncConnection) -> None:
        locked, pause = True, 0.0
        while True:
            try:
                async with connection:
                    if not self.up.is_set():
                        await self._listen(connection)
                        locked = await self._lock(connection, self.number)
                        self.up.set()
                        await self._connected()
                        log.debug("relay: connected again")
                    pause = 0.0
                    await self._attend(connection, locked)
            except (psycopg.Error, OSError, TimeoutError, Unavailable) as error:
                # `database` logs an outage of PostgreSQL once.
                log.debug("relay: the connection to PostgreSQL ended: %s", " ".join(str(error).split()))
            except Exception:
                log.exception("relay: the connection to PostgreSQL is opened anew")
            self.up.clear()
            connection, pause = await self._reconnect(pause)
            self._connection = connection

    async def _attend(self, connection: psycopg.AsyncConnection, locked: bool) -> None:
        """Listens, and calls `tick` for whatever notifications miss, until the connection ends.

        The lock is not available immediately if PostgreSQL has not yet noticed that the previous connection ended, or
        if another process tested the lock at that moment. Until PostgreSQL notices, the previous connection proves that
        this process is alive.
        """
        again, loop = 0.05, asyncio.get_running_loop()
        due = loop.time() + TICK
        while True:
            async for notification in connection.notifies(timeout=TICK if locked else again):
                self._heard(notification.payload)
            await self._ask(connection, b"SELECT 1")
            if not locked:
                again = min(TICK, 2 * again)
                locked = await self._lock(connection, self.number)
                if locked:  # from now on no process can consider this one dead; until now one may have
                    await self._connected()
            if loop.time() >= due:
                await self._tick()
                due = loop.time() + TICK

    async def _reconnect(self, pause: float) -> tuple[psycopg.AsyncConnection, float]:
        while True:
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE, max(0.05, 2 * pause))
            with suppress(Unavailable, OSError):
                return await self._connect(), pause

    async def _connect(self) -> psycopg.AsyncConnection:
        async with asyncio.timeout(TICK):
            return await self._database.dedicated()

    async def _listen(self, connection: psycopg.AsyncConnection) -> None:
        await self._ask(connection, f'LISTEN "{channel(self.number)}"'.encode())

    async def _lock(self, connection: psycopg.AsyncConnection, number: int) -> bool:
        cursor = await self._ask(connection, b"SELECT pg_try_advisory_lock(%s, %s)", (CLASS, number))
        row = await cursor.fetchone()
        return bool(row and row[0])

    async def _ask(
        self, connection: psycopg.AsyncConnection, statement: bytes, values: tuple[int, ...] | None = None
    ) -> psycopg.AsyncCursor:
        """Executes a statement that is answered within `TICK` seconds or fails."""
        async with asyncio.timeout(TICK):
            return await connection.execute(statement, values)

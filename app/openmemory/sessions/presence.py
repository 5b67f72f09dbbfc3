"""A connection to PostgreSQL that proves that this process lives, and on which others wake it."""

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
"""Seconds between two looks for what a notification should have told, and for whether the connection still works."""

_LONGEST_PAUSE = 1.0
"""Seconds between two attempts to connect."""


class Presence:
    """Holds the lock on this process's `number` and listens on its channel, on a connection that is renewed if it ends.

    `connected` is called after every connecting, `heard` with every payload, `tick` every `TICK` seconds.
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
        """Connect, and stay connected in the background until `stop`.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        try:
            connection = await self._connect()
            try:
                # Drawn again in the case that somebody has that number.
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
        """Disconnect: from now on this process counts as dead."""
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
                # Of an outage of PostgreSQL the log hears from `database`, once.
                log.debug("relay: the connection to PostgreSQL ended: %s", " ".join(str(error).split()))
            except Exception:
                log.exception("relay: the connection to PostgreSQL is opened anew")
            self.up.clear()
            connection, pause = await self._reconnect(pause)
            self._connection = connection

    async def _attend(self, connection: psycopg.AsyncConnection, locked: bool) -> None:
        """Listen, and look after what notifications do not tell, until the connection ends.

        Not `locked` at once is who connects before PostgreSQL has noticed that the connection before has ended: until
        it does, that one proves that we live; or whose lock somebody asked for at that very moment.
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
                if locked:  # nobody can take us for dead any more; somebody may have until now
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
        """Execute a statement that is answered at once or not at all."""
        async with asyncio.timeout(TICK):
            return await connection.execute(statement, values)

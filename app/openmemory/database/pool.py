"""A connection pool for single statements.

SQLAlchemy's pool takes as long to check a connection out and in as a short statement takes, and a search has four
statements. Here a connection is one object from its opening to its end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from psycopg import AsyncConnection as Driver
from psycopg.pq import TransactionStatus
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


@dataclass(frozen=True, slots=True)
class PoolUse:
    """The connections of one pool, and their limit."""

    used: int
    idle: int
    limit: int


class _Idle(NamedTuple):
    """An idle connection, its driver connection, and when it was opened by the monotonic clock."""

    connection: AsyncConnection
    driver: Driver[Any]
    opened: float


class CheckoutLimit:
    """Limits how many connections of a pool are in use, and how long a caller waits for one.

    A caller waits for `longest` seconds, but only while others give connections back: without one in `stalled` seconds
    the database hangs.
    """

    def __init__(self, size: int, *, stalled: float, longest: float) -> None:
        self._size = size
        self._stalled = stalled
        self._longest = longest
        self._free = asyncio.Semaphore(size)
        self._last = time.monotonic()

    @asynccontextmanager
    async def checkout(self) -> AsyncIterator[None]:
        """Counts the block as a connection in use.

        Raises:
            sqlalchemy.exc.TimeoutError: all connections stayed in use.
        """
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        try:
            yield
            self._last = time.monotonic()
        finally:
            self._free.release()

    async def _wait(self) -> None:
        start = time.monotonic()
        acquiring = asyncio.ensure_future(self._free.acquire())
        try:
            while not acquiring.done():
                limit = min(max(start, self._last) + self._stalled, start + self._longest)
                if (left := limit - time.monotonic()) <= 0:
                    raise exc.TimeoutError(f"all {self._size} connections are in use")
                await asyncio.wait({acquiring}, timeout=left)
        except BaseException:
            if not acquiring.cancel():
                self._free.release()
            raise


class ConnectionPool:
    """Checks out connections of an engine that commits every statement and has no pool. The most recently used one is
    reused first.

    At most `size` are open, and they stay open: a new one costs PostgreSQL as much as several searches, because its
    caches are empty. `fit` decides, by its opening time and driver connection, whether one can be reused.
    """

    def __init__(
        self, engine: AsyncEngine, fit: Callable[[float, Driver[Any]], bool], *, size: int, limit: CheckoutLimit
    ) -> None:
        self.engine = engine
        self._fit = fit
        self._size = size
        self._limit = limit
        self._idle: list[_Idle] = []
        self._used = 0
        self._closed = False

    @property
    def use(self) -> PoolUse:
        """Returns how many connections are in use, how many are idle, and the limit."""
        return PoolUse(self._used, len(self._idle), self._size)

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """Checks out a connection for the duration of the block.

        Raises:
            sqlalchemy.exc.TimeoutError: all connections stayed in use.
            sqlalchemy.exc.DBAPIError: no connection can be opened.
        """
        async with self._limit.checkout():
            self._used += 1
            try:
                connection = await self._taken()
                try:
                    yield connection
                finally:
                    await self._returned(connection)
            finally:
                self._used -= 1

    async def close(self) -> None:
        """Close every idle connection, and from now on every returned one."""
        self._closed = True
        while self._idle:
            await _close(self._idle.pop().connection)
        await self.engine.dispose()

    async def _taken(self) -> AsyncConnection:
        while self._idle:
            idle = self._idle.pop()
            if self._fit(idle.opened, idle.driver):
                return idle.connection
            await _close(idle.connection)
        return await self.engine.connect()

    async def _returned(self, connection: AsyncConnection) -> None:
        if self._closed or connection.closed or connection.invalidated:
            await _close(connection)
            return
        fairy = cast(Any, connection.sync_connection).connection
        driver: Driver[Any] = fairy.driver_connection
        if driver.pgconn.transaction_status != TransactionStatus.IDLE:
            await _close(connection)
            return
        if connection.in_transaction():
            # Only in SQLAlchemy's state, if it executed something: the server has committed it already.
            await connection.commit()
        self._idle.append(_Idle(connection, driver, fairy.info["opened"]))


async def driver_of(connection: AsyncConnection) -> Driver[Any]:
    """Returns the driver's connection, for operations that bypass SQLAlchemy."""
    sync = connection.sync_connection
    if sync is None or sync.invalidated or sync.closed:
        return cast(Driver[Any], (await connection.get_raw_connection()).driver_connection)
    # `get_raw_connection` takes as long as building a statement. It is needed only if a connection must be opened.
    return cast(Driver[Any], sync.connection.driver_connection)


async def _close(connection: AsyncConnection) -> None:
    # Like the end of `async with`: it completes even if its user is cancelled meanwhile.
    await connection.__aexit__(None, None, None)

"""A connection pool whose callers wait in line.

SQLAlchemy's pool takes as long to check a connection out and in as a short statement takes, and a search has four
statements. Here a connection is one object from its opening to its end.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

from psycopg import AsyncConnection as Driver
from psycopg.pq import TransactionStatus
from sqlalchemy import exc
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from openmemory.database.failures import has_no_room

_REFUSED = 0.5
"""Seconds until a pool tries again to open a connection that the server refused."""


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
    """Limits how many connections of a pool are in use, and how long a caller waits in line for one.

    A caller waits for `longest` seconds, but only while others give connections back: without one in `stalled` seconds
    the database hangs.
    """

    def __init__(self, size: int, *, stalled: float, longest: float) -> None:
        self._size = size
        self._stalled = stalled
        self._longest = longest
        self._free = size
        self._line: deque[asyncio.Future[None]] = deque()
        self._last = time.monotonic()

    async def enter(self, since: float, *, first: bool = False) -> None:
        """Counts a connection as in use, as soon as there is one. `since`: when the caller began to wait; `first`: the
        caller stood in line already.

        Raises:
            sqlalchemy.exc.TimeoutError: all connections stayed in use.
        """
        if self._free:
            self._free -= 1
            return
        turn = asyncio.get_running_loop().create_future()
        (self._line.appendleft if first else self._line.append)(turn)
        try:
            while not turn.done():
                limit = min(max(since, self._last) + self._stalled, since + self._longest)
                if (remaining := limit - time.monotonic()) <= 0:
                    raise exc.TimeoutError(f"all {self._size} connections are in use")
                await asyncio.wait({turn}, timeout=remaining)
        except BaseException:
            if turn.cancel():
                self._line.remove(turn)
            else:
                self._next()
            raise

    def leave(self, *, worked: bool) -> None:
        """Gives a connection back. `worked`: the database served it."""
        if worked:
            self._last = time.monotonic()
        self._next()

    def suspend(self) -> None:
        """Gives back a connection that the server refuses to open. The pool has one less for a moment."""
        asyncio.get_running_loop().call_later(_REFUSED, self._next)

    def _next(self) -> None:
        while self._line:
            if not (turn := self._line.popleft()).done():  # it is if its caller was cancelled a moment ago
                turn.set_result(None)
                return
        self._free += 1


class ConnectionPool:
    """Checks out connections of an engine that has no pool. The most recently used one is reused first.

    At most `size` are open, and they stay open: a new one costs PostgreSQL as much as several searches, because its
    caches are empty. `fit` decides, by its opening time and driver connection, whether one can be reused. While the
    server grants no further connection, callers wait for those that are open; `make_room` closes one that another pool
    keeps.
    """

    def __init__(
        self,
        engine: AsyncEngine,
        fit: Callable[[float, Driver[Any]], bool],
        *,
        size: int,
        limit: CheckoutLimit,
        make_room: Callable[[], Awaitable[bool]],
    ) -> None:
        self.engine = engine
        self._fit = fit
        self._size = size
        self._limit = limit
        self._make_room = make_room
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
        connection = await self._acquire()
        self._used += 1
        worked = False
        try:
            yield connection
            worked = True
        finally:
            try:
                await self._release(connection)
            finally:
                self._used -= 1
                self._limit.leave(worked=worked)

    async def _acquire(self) -> AsyncConnection:
        since, first = time.monotonic(), False
        while True:
            await self._limit.enter(since, first=first)
            try:
                while True:
                    try:
                        return await self._reuse_or_connect()
                    except exc.DBAPIError as error:
                        if not has_no_room(error):
                            raise
                    if not await self._make_room():
                        break
            except BaseException:
                self._limit.leave(worked=False)
                raise
            self._limit.suspend()
            first = True

    async def drop_idle(self) -> bool:
        """Close the idle connection that was used least recently. Returns False if there is none."""
        if not self._idle:
            return False
        await _close(self._idle.pop(0).connection)
        return True

    async def close(self) -> None:
        """Close every idle connection, and from now on every returned one."""
        self._closed = True
        while self._idle:
            await _close(self._idle.pop().connection)
        await self.engine.dispose()

    async def _reuse_or_connect(self) -> AsyncConnection:
        while self._idle:
            idle = self._idle.pop()
            if self._fit(idle.opened, idle.driver):
                return idle.connection
            await _close(idle.connection)
        return await self.engine.connect()

    async def _release(self, connection: AsyncConnection) -> None:
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

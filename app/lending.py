"""Connections that stay taken out of their pool between two users who follow each other.

What SQLAlchemy does to take a connection out of its pool and to put it back costs half as much as a short statement,
and a search has four statements.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple, cast

from psycopg import AsyncConnection as Driver
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine


class _Idle(NamedTuple):
    """A connection that nobody uses, that of the driver in it, and when it was opened by the monotonic clock."""

    connection: AsyncConnection
    driver: Any
    opened: float


class Lender:
    """Lends connections of an engine that commit every statement: the one that was used last first.

    At most `most` of them stay out of the pool while nobody uses them. `fit` tells, by when it was opened and by the
    driver's connection, whether one may be used again.
    """

    def __init__(self, engine: AsyncEngine, most: int, fit: Callable[[float, Any], bool]) -> None:
        self.engine = engine
        self._most = most
        self._fit = fit
        self._idle: list[_Idle] = []
        self._waiting = 0

    @property
    def idle(self) -> int:
        """Connections that are out of the pool and nobody uses."""
        return len(self._idle)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[AsyncConnection]:
        """A connection, for as long as the block lasts.

        Raises:
            sqlalchemy.exc.TimeoutError: all of them are in use, and stay so.
            sqlalchemy.exc.DBAPIError: none can be opened.
        """
        connection = await self._taken()
        try:
            yield connection
        except BaseException:
            await _put_back(connection)
            raise
        # What SQLAlchemy executed something on is in a transaction by its book, and whoever waits does so at the pool.
        if self._waiting or len(self._idle) >= self._most or connection.in_transaction():
            await _put_back(connection)
            return
        fairy = cast(Any, connection.sync_connection).connection
        self._idle.append(_Idle(connection, fairy.driver_connection, fairy.info["opened"]))

    async def close(self) -> None:
        """Close every connection that nobody uses."""
        while self._idle:
            await _put_back(self._idle.pop().connection)
        await self.engine.dispose()

    async def _taken(self) -> AsyncConnection:
        while self._idle:
            idle = self._idle.pop()
            if self._fit(idle.opened, idle.driver):
                return idle.connection
            # The pool opens it anew for its next user.
            await _put_back(idle.connection)
        self._waiting += 1
        try:
            return await self.engine.connect()
        finally:
            self._waiting -= 1


async def driver_of(connection: AsyncConnection) -> Driver[Any]:
    """The driver's connection, for what SQLAlchemy need not know of."""
    sync = connection.sync_connection
    if sync is None or sync.invalidated or sync.closed:
        return cast(Driver[Any], (await connection.get_raw_connection()).driver_connection)
    # That way takes as long as putting a statement together; it is needed only where something has to be opened.
    return cast(Driver[Any], sync.connection.driver_connection)


async def _put_back(connection: AsyncConnection) -> None:
    # As the end of `async with` does it: one that is half put back when its user is cancelled would be lost.
    await connection.__aexit__(None, None, None)

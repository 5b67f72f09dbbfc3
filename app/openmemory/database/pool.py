"""Connections for single statements, which are lent as they are.

SQLAlchemy's pool takes as long to hand a connection out and to take it back as a short statement takes, and a search
has four statements. Here a connection is one object from the moment it is opened to its end.
"""

from __future__ import annotations

import asyncio
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
    """Connections of one pool, and how many there may be."""

    used: int
    idle: int
    limit: int


class _Idle(NamedTuple):
    """A connection that nobody uses, that of the driver in it, and when it was opened by the monotonic clock."""

    connection: AsyncConnection
    driver: Driver[Any]
    opened: float


class Lender:
    """Lends connections of an engine that commits every statement and has no pool; the one used last is lent first.

    At most `most` are open, of which `kept` stay so while nobody uses them. `patience`: seconds that one is waited for.
    `fit` tells, by when it was opened and by the driver's connection, whether one may be used again.
    """

    def __init__(
        self, engine: AsyncEngine, fit: Callable[[float, Driver[Any]], bool], *, kept: int, most: int, patience: float
    ) -> None:
        self.engine = engine
        self._fit = fit
        self._kept = kept
        self._most = most
        self._patience = patience
        self._idle: list[_Idle] = []
        self._free = asyncio.Semaphore(most)
        self._used = self._waiting = 0

    @property
    def use(self) -> PoolUse:
        """How many are lent, and how many wait for that."""
        return PoolUse(self._used, len(self._idle), self._most)

    @asynccontextmanager
    async def lent(self) -> AsyncIterator[AsyncConnection]:
        """A connection, for as long as the block lasts.

        Raises:
            sqlalchemy.exc.TimeoutError: all of them are in use, and stay so.
            sqlalchemy.exc.DBAPIError: none can be opened.
        """
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        self._used += 1
        try:
            connection = await self._taken()
            try:
                yield connection
            finally:
                await self._returned(connection)
        finally:
            self._used -= 1
            self._free.release()

    async def close(self) -> None:
        """Close every connection that nobody uses, and from now on those that come back."""
        self._kept = 0
        while self._idle:
            await _close(self._idle.pop().connection)
        await self.engine.dispose()

    async def _wait(self) -> None:
        self._waiting += 1
        try:
            async with asyncio.timeout(self._patience):
                await self._free.acquire()
        except TimeoutError:
            raise exc.TimeoutError(f"all {self._most} connections are in use") from None
        finally:
            self._waiting -= 1

    async def _taken(self) -> AsyncConnection:
        while self._idle:
            idle = self._idle.pop()
            if self._fit(idle.opened, idle.driver):
                return idle.connection
            await _close(idle.connection)
        return await self.engine.connect()

    async def _returned(self, connection: AsyncConnection) -> None:
        if len(self._idle) >= self._kept + self._waiting or connection.closed or connection.invalidated:
            await _close(connection)
            return
        fairy = cast(Any, connection.sync_connection).connection
        driver: Driver[Any] = fairy.driver_connection
        if driver.pgconn.transaction_status != TransactionStatus.IDLE:
            await _close(connection)
            return
        if connection.in_transaction():
            # By SQLAlchemy's book alone, if it executed something: the server has committed it long since.
            await connection.commit()
        self._idle.append(_Idle(connection, driver, fairy.info["opened"]))


async def driver_of(connection: AsyncConnection) -> Driver[Any]:
    """The driver's connection, for what SQLAlchemy need not know of."""
    sync = connection.sync_connection
    if sync is None or sync.invalidated or sync.closed:
        return cast(Driver[Any], (await connection.get_raw_connection()).driver_connection)
    # That way takes as long as putting a statement together; it is needed only where something has to be opened.
    return cast(Driver[Any], sync.connection.driver_connection)


async def _close(connection: AsyncConnection) -> None:
    # As the end of `async with` does it: complete, though its user is cancelled meanwhile.
    await connection.__aexit__(None, None, None)

"""Connections whose waiting has an end: PostgreSQL's own timeouts end nothing once it is out of reach."""

from __future__ import annotations

import asyncio
import select
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from psycopg import AsyncConnection, Error
from psycopg import errors as pg
from psycopg.abc import PQGen

T = TypeVar("T")


class Connection(AsyncConnection[Any]):
    """A connection that gives up a server that answers nothing.

    After `patience` seconds without an answer the server is asked for a sign of life; a slow statement may go on to its
    `deadline`. A connection that gave up is closed: whatever comes later would be the answer to another question.
    """

    patience: float
    deadline: float
    alive: Callable[[], Awaitable[bool]]

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ASYNC109
        """Go on with an exchange with the server until it is complete.

        Raises:
            psycopg.OperationalError: the server does not answer any more.
        """
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        waited = 0.0
        while True:
            pause = min(self.patience, self.deadline - waited)
            try:
                return await super().wait(gen, interval, pause)
            except pg._WaitTimeout:  # the one exception that tells this from a failure; the exchange can go on
                waited += pause
            try:
                hopeless = waited >= self.deadline or not await self.alive()
            except BaseException:
                self.pgconn.finish()
                raise
            if hopeless:
                self.pgconn.finish()
                raise pg.OperationalError(f"no answer to a statement for {waited:g} s")


class Heart:
    """Whether a server answers at all: asked on a connection of its own, once for all who want to know."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._asking: asyncio.Task[bool] | None = None

    async def beats(self) -> bool:
        """Whether it does; takes no longer than a connection may take."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask(), name="postgres-heart")
        return await asyncio.shield(self._asking)

    async def _ask(self) -> bool:
        try:
            connection = await self._connect()
        except Error as error:
            # What is refused in words was answered: too many connections, say.
            return "FATAL" in str(error)
        await connection.close()
        return True


def ended(connection: AsyncConnection[Any]) -> bool:
    """Whether a connection that nobody uses has ended: all that comes to it unasked is the news of that."""
    try:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        return bool(poll.poll(0))
    except Error:  # it has no socket any more
        return True

"""Connections with bounded waits: PostgreSQL's own timeouts have no effect once the server is unreachable."""

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
    """A connection that gives up if the server does not answer.

    After `patience` seconds without an answer it checks that the server is alive; a slow statement may then run until
    its `deadline`. A connection that gave up is closed, because a late answer would belong to another statement.
    """

    patience: float
    deadline: float
    alive: Callable[[], Awaitable[bool]]

    async def wait(self, gen: PQGen[T], interval: float = 0.1, timeout: float | None = None) -> T:  # noqa: ASYNC109
        """Continue an exchange with the server until it is complete.

        Raises:
            psycopg.OperationalError: the server no longer answers.
        """
        if timeout is not None:
            return await super().wait(gen, interval, timeout)
        waited = 0.0
        while True:
            pause = min(self.patience, self.deadline - waited)
            try:
                return await super().wait(gen, interval, pause)
            except pg._WaitTimeout:  # the only exception that is not a failure: the exchange can continue
                waited += pause
            try:
                hopeless = waited >= self.deadline or not await self.alive()
            except BaseException:
                self.pgconn.finish()
                raise
            if hopeless:
                self.pgconn.finish()
                raise pg.OperationalError(f"no answer to a statement for {waited:g} s")


class LivenessCheck:
    """Checks if a server answers at all, on a separate connection. Concurrent callers share one check."""

    def __init__(self, connect: Callable[[], Awaitable[AsyncConnection[Any]]]) -> None:
        self._connect = connect
        self._task: asyncio.Task[bool] | None = None

    async def beats(self) -> bool:
        """Returns True if the server answers. Takes no longer than opening a connection may take."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._check(), name="postgres-heart")
        return await asyncio.shield(self._task)

    async def _check(self) -> bool:
        try:
            connection = await self._connect()
        except Error as error:
            # A refusal with a message is an answer, such as too many connections.
            return "FATAL" in str(error)
        await connection.close()
        return True


def ended(connection: AsyncConnection[Any]) -> bool:
    """Returns True if an idle connection was closed. The server sends no other data to an idle connection."""
    try:
        poll = select.poll()
        poll.register(connection.pgconn.socket, select.POLLIN)
        return bool(poll.poll(0))
    except Error:  # the socket is closed already
        return True

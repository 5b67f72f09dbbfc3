"""Relays messages of SSE sessions that reached a process other than the one that holds the stream.

The receiving process stores the message in PostgreSQL and notifies the holder. The holder takes the message, passes it
to the session as if it had arrived by HTTP, and reports the status. Only then does the client get its response:

- 202: the session has the message, once, in the order of the client's requests, whichever processes received them. As
  without a relay, the stream may still end before it carries the answer.
- 404: there is no such session. It is unknown, ended, or another user's, or its process died half a minute ago.
- 503 `relay_busy`: the message was not delivered and may be sent again.
- 503 `relay_uncertain`: the message was delivered once or not at all.

Each process renews its sessions every `TICK` seconds and whenever it reconnects to PostgreSQL, so they outlive an
outage. Sessions that ended, or whose process died, are not renewed, and any process removes them. Until then, messages
to a process that died get 503.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import count
from uuid import UUID

import psycopg
from sqlalchemy import text
from sqlalchemy.exc import InternalError, OperationalError

from openmemory.database.engine import Database, Tx
from openmemory.database.pool import driver_of
from openmemory.errors import Unavailable
from openmemory.sessions import storage
from openmemory.sessions.storage import CHANNEL, MessageSender, ReceivedMessage, SessionOwner

log = logging.getLogger(__name__)

TICK = 5.0
"""Seconds between two renewals of the sessions. Messages whose notification was lost are taken at the same time."""

STALE = 15.0
"""Seconds without a renewal, not counting the last round of `TICK` seconds, after which a session is removed."""

PATIENCE = 10.0
"""Seconds within which a process must take a message."""

GRACE = 2.0
"""Seconds that a message waits while this process reconnects to PostgreSQL."""

_PAUSE = 0.2
"""Seconds between two attempts to connect."""

Deliver = Callable[[UUID, bytes], Awaitable[int]]
"""Passes a message to a session of this process and returns the HTTP status of the response."""


class UncertainDelivery(Unavailable):
    """The message was delivered once or not at all."""

    code = "relay_uncertain"


class Relay:
    """Relays messages between the processes that share a PostgreSQL database."""

    def __init__(self, database: Database, deliver: Deliver) -> None:
        self._database = database
        self._deliver = deliver
        self._number = secrets.randbelow(2**31)
        self._sessions: dict[UUID, SessionOwner] = {}
        self._tickets = count(1)
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._listening = asyncio.Event()

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Relays messages while the block runs."""
        task = asyncio.create_task(self._stay_connected(), name="relay")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])
            try:
                async with self._database.statement() as tx:
                    await storage.leave(tx, self._number)
            except Unavailable as error:
                log.info("relay: the sessions are left to the others to remove: %s", error)

    async def opened(self, session: UUID, owner: SessionOwner) -> None:
        """Announces a session to the other processes before its client knows it."""
        self._sessions[session] = owner
        try:
            async with self._database.statement() as tx:
                await storage.enter(tx, self._number, {session: owner})
        except Unavailable as error:
            log.debug("relay: a session is not known to other processes yet: %s", error)

    def closed(self, session: UUID) -> None:
        """Forgets a session. Until it is stale, the others still send its messages here, where it is not found."""
        self._sessions.pop(session, None)

    async def stands(self, session: UUID) -> bool:
        """Returns True if this session accepts messages without a credential.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        async with self._database.statement() as tx:
            return await storage.stands(tx, session)

    async def forward(self, session: UUID, poster: MessageSender, body: bytes) -> int:
        """Forwards a message. Returns the HTTP status of the answer, or 404 if the poster has no such session.

        Raises:
            Unavailable: the message was not delivered.
            UncertainDelivery: the message may have been delivered.
        """
        ticket = next(self._tickets)
        answer = self._waiting[ticket] = asyncio.Future[int]()
        try:
            number = await self._send(session, poster, ticket, body)
            if number is None:
                return 404
            await asyncio.wait([answer], timeout=PATIENCE)
            withdrawn = not answer.done() and await self._withdraw(number)
            if answer.done():
                return answer.result()
        finally:
            self._waiting.pop(ticket, None)
        if withdrawn:
            raise _busy("the process that holds the session does not take it")
        raise UncertainDelivery("It is not known whether the session got the message.")

    async def _send(self, session: UUID, poster: MessageSender, ticket: int, body: bytes) -> int | None:
        connected = False
        try:
            async with asyncio.timeout(GRACE):
                await self._listening.wait()
            async with self._database.statement() as tx:
                connected = True
                return await storage.send(tx, session, poster, sender=self._number, ticket=ticket, body=body)
        except (TimeoutError, Unavailable) as error:
            if connected:
                raise UncertainDelivery("PostgreSQL went away while the message was passed on.") from error
            raise _busy("PostgreSQL does not answer") from error

    async def _withdraw(self, number: int) -> bool:
        try:
            async with self._database.statement() as tx:
                return await storage.withdraw(tx, number)
        except Unavailable as error:
            log.debug("relay: a message cannot be withdrawn: %s", error)
            return False

    async def _stay_connected(self) -> None:
        while True:
            try:
                # Outside the pools: an acknowledgement must not wait until a request returns a connection.
                async with self._database.unpooled() as tx:
                    while True:
                        await self._round(tx)
            except (psycopg.OperationalError, OperationalError, InternalError, OSError) as error:
                log.debug("relay: the connection to PostgreSQL ended: %s", " ".join(str(error).split()))
            except Exception:
                log.exception("relay: the connection to PostgreSQL is opened anew")
            self._listening.clear()
            await asyncio.sleep(_PAUSE)

    async def _round(self, tx: Tx) -> None:
        """Renews the sessions of this process, handles notifications for `TICK` seconds, and removes stale sessions."""
        async with asyncio.timeout(TICK):  # LISTEN in each round, because a connection may be dead and look open
            await tx.execute(text(f'LISTEN "{CHANNEL}{self._number}"'))
        began = await storage.enter(tx, self._number, self._sessions)
        self._listening.set()
        await self._receive(tx)
        driver, clock = await driver_of(tx), asyncio.get_running_loop().time
        until = clock() + TICK
        while (left := until - clock()) > 0:
            payloads = {each.payload async for each in driver.notifies(timeout=left, stop_after=1)}
            for payload in payloads - {""}:
                ticket, status = map(int, payload.split(":"))
                if (answer := self._waiting.pop(ticket, None)) is not None:
                    answer.set_result(status)
            if "" in payloads:
                await self._receive(tx)
        # By now, others had time to renew theirs, even if PostgreSQL or this machine was away until the round began.
        if removed := await storage.sweep(tx, began - timedelta(seconds=STALE)):
            log.debug("relay: removed %d sessions that ended or whose processes died", removed)

    async def _receive(self, tx: Tx) -> None:
        """Passes on the messages that wait, one after another, to keep their order."""
        while messages := await storage.receive(tx, self._number):
            await storage.acknowledge(tx, [(each, await self._delivered(each)) for each in messages])

    async def _delivered(self, message: ReceivedMessage) -> int:
        try:
            return await self._deliver(message.session, message.body)
        except Exception:
            log.exception("relay: a message could not be handed to its session")
            return 500


def _busy(why: str) -> Unavailable:
    return Unavailable(f"The message was not delivered: {why}.", code="relay_busy", hint="Send it again.")

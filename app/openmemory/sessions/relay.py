"""Relays messages of SSE sessions that reached a process other than the one that holds the stream.

The receiving process stores the message in PostgreSQL and notifies the holder. The holder takes the message, passes it
to the session as if it had arrived by HTTP, and reports the status. Only then does the client get its response:

- 202: the session has the message, once, in the order of the client's requests, whichever processes received them. As
  without a relay, the stream may still end before it carries the answer.
- 404: there is no such session. It is unknown, ended, or another user's, or its process died some seconds ago.
- 503 `relay_busy`: the message was not delivered and may be sent again.
- 503 `relay_uncertain`: the process that took the message cannot report the result. The message was delivered once or
  not at all.

A process that reconnects to PostgreSQL after an outage registers its sessions again, and they continue. If a process
seems dead, the others wait for one more tick before they remove its sessions.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count, groupby, islice
from uuid import UUID

from sqlalchemy.exc import IntegrityError

from openmemory.database.engine import Database, Tx
from openmemory.errors import Unavailable
from openmemory.sessions import storage
from openmemory.sessions.presence import Presence
from openmemory.sessions.storage import MessageSender, ReceivedMessage, SessionOwner

log = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds that a message waits for a process that seems dead, because PostgreSQL may have restarted."""

_LEFT_AT_ONCE = 500
"""Maximum number of ended sessions removed in one statement."""

PATIENCE = 10.0
"""Seconds within which a process must take a message."""

LOOK = 0.5
"""Seconds without an acknowledgement after which a sender checks the state of its message."""

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
        self._presence = Presence(database, connected=self._enter_all, heard=self._heard, tick=self._tick)
        self._mine: dict[UUID, SessionOwner] = {}
        self._not_entered: set[UUID] = set()
        self._not_left: set[UUID] = set()
        self._suspects: set[int] = set()
        self._tickets = count(1)
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._mail = asyncio.Event()
        self._leaving: asyncio.Task[None] | None = None
        self._unacknowledged: list[tuple[int, int, int]] = []

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Relays messages while the block runs.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        await self._presence.start()
        taking = asyncio.create_task(self._take(), name="relay")
        try:
            yield
        finally:
            taking.cancel()
            await asyncio.wait([taking] if self._leaving is None else [taking, self._leaving])
            try:
                async with self._database.statement() as tx:
                    await storage.leave_all(tx, self._presence.number)
            except Unavailable as error:
                log.info("relay: the sessions are left to the others to remove: %s", error)
            await self._presence.stop()

    async def opened(self, session: UUID, owner: SessionOwner) -> None:
        """Announces a session to the other processes before its client knows it."""
        self._mine[session] = owner
        try:
            async with self._database.statement() as tx:
                await storage.enter(tx, self._presence.number, {session: self._mine[session]})
        except Unavailable as error:
            self._not_entered.add(session)
            log.debug("relay: a session is not known to other processes yet: %s", error)

    def closed(self, session: UUID) -> None:
        """Announces the end of a session. Does not wait, because the session's task may be in cancellation."""
        self._mine.pop(session, None)
        self._not_entered.discard(session)
        self._not_left.add(session)
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._leave())

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
            Unavailable: the message was not delivered; the error message says so.
            Uncertain: the message may have been delivered.
        """
        try:
            async with asyncio.timeout(GRACE):
                await self._presence.up.wait()
        except TimeoutError:
            raise _busy("PostgreSQL does not answer") from None
        ticket, answer = next(self._tickets), asyncio.get_running_loop().create_future()
        self._waiting[ticket] = answer
        try:
            sent = await self._send(session, poster, ticket, body)
            if sent is None or sent.number is None:
                return 404
            return await self._answered(answer, session, sent.holder, sent.number)
        finally:
            del self._waiting[ticket]

    async def _send(self, session: UUID, poster: MessageSender, ticket: int, body: bytes) -> storage.SendResult | None:
        deadline = time.monotonic() + GRACE
        while True:
            try:
                async with self._database.statement() as tx:
                    sender = self._presence.number
                    sent = await storage.send(tx, session, poster, sender=sender, ticket=ticket, body=body)
                    if sent is None or sent.number is not None:
                        return sent
                if time.monotonic() > deadline:
                    raise _busy("the process that holds the session does not answer")
            except IntegrityError:
                return None
            await asyncio.sleep(0.1)

    async def _answered(self, answer: asyncio.Future[int], session: UUID, holder: int, number: int) -> int:
        began = time.monotonic()
        seen = began  # when the session was last seen
        while True:
            done, _ = await asyncio.wait([answer], timeout=LOOK)
            if done:
                return answer.result()
            try:
                async with self._database.statement() as tx:
                    fate = await storage.fate(tx, number, session, holder)
                    now = time.monotonic()
                    if fate.open and fate.alive:
                        seen = now
                    lost = now > seen + GRACE
                    late = now > began + PATIENCE
                    withdrawn = fate.waiting and (lost or late) and await storage.withdraw(tx, number)
            except Unavailable as error:
                if answer.done():
                    return answer.result()
                raise UncertainDelivery("PostgreSQL went away while the message was passed on.") from error
            if answer.done():  # it arrived during the check
                return answer.result()
            if withdrawn:
                raise _busy("the process that holds the session does not take it")
            if lost and fate.alive:
                return 404
            if lost or (late and not fate.waiting):
                raise UncertainDelivery("It is not known whether the session got the message.")

    def _heard(self, payload: str) -> None:
        if not payload:
            self._mail.set()
        for ticket, status in storage.acknowledged(payload):
            answer = self._waiting.get(ticket)
            if answer is not None and not answer.done():
                answer.set_result(status)

    async def _take(self) -> None:
        """Passes on arriving messages, one batch after another, to keep their order."""
        while True:
            await self._mail.wait()
            self._mail.clear()
            try:
                while await self._take_batch():
                    continue
            except Unavailable as error:
                log.debug("relay: messages wait: %s", error)
            except Exception:
                log.exception("relay: messages wait")
            else:
                continue
            await asyncio.sleep(LOOK)
            self._mail.set()

    async def _take_batch(self) -> bool:
        # One connection for everything: an acknowledgement must not wait until a request returns a connection.
        async with self._database.statement() as tx:
            await self._acknowledge(tx)
            messages = await storage.take(tx, self._presence.number)
            # The deliveries start in this order, and each reaches its session before the next one starts.
            statuses = await asyncio.gather(*(self._delivered(message) for message in messages))
            for message, status in zip(messages, statuses, strict=True):
                self._unacknowledged.append((message.sender, message.ticket, status))
            await self._acknowledge(tx)
        return bool(messages)

    async def _acknowledge(self, tx: Tx) -> None:
        """Sends the pending acknowledgements to the senders. Those that fail now are sent later."""
        for sender, those in groupby(sorted(self._unacknowledged), key=lambda one: one[0]):
            await storage.acknowledge(tx, sender, [(ticket, status) for _, ticket, status in those])
        self._unacknowledged.clear()

    async def _delivered(self, message: ReceivedMessage) -> int:
        try:
            return await self._deliver(message.session, message.body)
        except Exception:
            log.exception("relay: a message could not be handed to its session")
            return 500

    async def _enter_all(self) -> None:
        """Registers every session again: PostgreSQL may have crashed, or others may consider this process dead."""
        self._not_entered |= self._mine.keys()
        await self._tick()

    async def _enter(self, sessions: dict[UUID, SessionOwner]) -> None:
        if not sessions:
            return
        async with self._database.statement() as tx:
            await storage.enter(tx, self._presence.number, sessions)
        self._not_entered -= sessions.keys()
        if over := sessions.keys() - self._mine.keys():
            self._not_left |= over
            await self._leave()

    async def _leave(self) -> None:
        try:
            while over := set(islice(self._not_left, _LEFT_AT_ONCE)):
                async with self._database.statement() as tx:
                    await storage.leave(tx, over)
                self._not_left -= over
        except Unavailable as error:
            log.info("relay: ended sessions are removed later: %s", error)

    async def _tick(self) -> None:
        """Catches up after lost notifications and outages, and removes the sessions of processes that stay dead."""
        self._mail.set()
        try:
            await self._enter({session: self._mine[session] for session in self._not_entered})
            await self._leave()
            await self._bury()
        except Unavailable as error:
            log.debug("relay: not now: %s", error)

    async def _bury(self) -> None:
        async with self._database.statement() as tx:
            found = await storage.dead(tx, self._presence.number)
            if buried := found & self._suspects:
                removed = await storage.bury(tx, buried)
                log.info("relay: removed %d sessions of %d dead processes", removed, len(buried))
            self._suspects = found - buried


def _busy(why: str) -> Unavailable:
    return Unavailable(f"The message was not delivered: {why}.", code="relay_busy", hint="Send it again.")

"""Messages of SSE sessions that reached another process than the one that holds the stream.

The process that got the message stores it in PostgreSQL and wakes the other, which takes it, hands it to the session as
if it had come by HTTP, and says what the answer was. Only then the client is answered. So:

- 202 means that the session has the message: once, in the order of the client's requests, whichever processes these
  reached. As without a relay it does not mean that the stream will live to carry the answer.
- 404 means that there is no such session: unknown, another user's, over, or its process died some seconds ago.
- 503 `relay_busy` means that the message was not delivered and may be sent again; 503 `relay_uncertain`, that the
  process which took it cannot say what became of it: it was delivered once or not at all.

A process that is connected to PostgreSQL again after an outage enters its sessions again, and they live on. One that
seems dead is given the time between two ticks of the others before they remove its sessions.
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
from openmemory.sessions.storage import Message, Owner, Poster

log = logging.getLogger(__name__)

GRACE = 2.0
"""Seconds that a message waits for a process that seems dead: PostgreSQL may have been restarted."""

_LEFT_AT_ONCE = 500
"""Ended sessions of which the others are told in one statement."""

PATIENCE = 10.0
"""Seconds that a process may need to take a message."""

LOOK = 0.5
"""Seconds without an acknowledgement after which a sender looks what became of its message."""

Deliver = Callable[[UUID, bytes], Awaitable[int]]
"""Hands a message to a session of this process; the HTTP status of its answer."""


class Uncertain(Unavailable):
    """The message was delivered once or not at all."""

    code = "relay_uncertain"


class Relay:
    """Knows the sessions of every process on the same PostgreSQL, and passes messages on between them."""

    def __init__(self, database: Database, deliver: Deliver) -> None:
        self._database = database
        self._deliver = deliver
        self._presence = Presence(database, connected=self._enter_all, heard=self._heard, tick=self._tick)
        self._mine: dict[UUID, Owner] = {}
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
        """Relay while the block runs.

        Raises:
            Unavailable: PostgreSQL does not answer now.
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

    async def opened(self, session: UUID, owner: Owner) -> None:
        """Let the other processes know of a session, before its client does."""
        self._mine[session] = owner
        try:
            async with self._database.statement() as tx:
                await storage.enter(tx, self._presence.number, {session: self._mine[session]})
        except Unavailable as error:
            self._not_entered.add(session)
            log.debug("relay: a session is not known to other processes yet: %s", error)

    def closed(self, session: UUID) -> None:
        """Let them know that it is over. Does not wait: the task of the session may be being cancelled."""
        self._mine.pop(session, None)
        self._not_entered.discard(session)
        self._not_left.add(session)
        if self._leaving is None or self._leaving.done():
            self._leaving = asyncio.create_task(self._leave())

    async def stands(self, session: UUID) -> bool:
        """Whether a message without a credential may be for this session.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        async with self._database.statement() as tx:
            return await storage.stands(tx, session)

    async def forward(self, session: UUID, poster: Poster, body: bytes) -> int:
        """Pass a message on; the HTTP status of the session's answer, 404 if there is no such session of that poster.

        Raises:
            Unavailable: it could not be passed on, and the message says so.
            Uncertain: it may have been.
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

    async def _send(self, session: UUID, poster: Poster, ticket: int, body: bytes) -> storage.Sent | None:
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
        seen = began  # when the session was last there
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
                raise Uncertain("PostgreSQL went away while the message was passed on.") from error
            if answer.done():  # it came while we looked
                return answer.result()
            if withdrawn:
                raise _busy("the process that holds the session does not take it")
            if lost and fate.alive:
                return 404
            if lost or (late and not fate.waiting):
                raise Uncertain("It is not known whether the session got the message.")

    def _heard(self, payload: str) -> None:
        if not payload:
            self._mail.set()
        for ticket, status in storage.acknowledged(payload):
            answer = self._waiting.get(ticket)
            if answer is not None and not answer.done():
                answer.set_result(status)

    async def _take(self) -> None:
        """Hand over what arrives, one batch after the other, so that the order stays."""
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
        # On one connection: who waits for an acknowledgement must not wait for requests to give one back.
        async with self._database.statement() as tx:
            await self._acknowledge(tx)
            messages = await storage.take(tx, self._presence.number)
            # Begun in this order, each gets as far as its session before the next one begins.
            statuses = await asyncio.gather(*(self._delivered(message) for message in messages))
            for message, status in zip(messages, statuses, strict=True):
                self._unacknowledged.append((message.sender, message.ticket, status))
            await self._acknowledge(tx)
        return bool(messages)

    async def _acknowledge(self, tx: Tx) -> None:
        """Tell the senders; what cannot be told now is told later."""
        for sender, those in groupby(sorted(self._unacknowledged), key=lambda one: one[0]):
            await storage.acknowledge(tx, sender, [(ticket, status) for _, ticket, status in those])
        self._unacknowledged.clear()

    async def _delivered(self, message: Message) -> int:
        try:
            return await self._deliver(message.session, message.body)
        except Exception:
            log.exception("relay: a message could not be handed to its session")
            return 500

    async def _enter_all(self) -> None:
        """Enter every session anew: PostgreSQL may have crashed, or others may have taken us for dead."""
        self._not_entered |= self._mine.keys()
        await self._tick()

    async def _enter(self, sessions: dict[UUID, Owner]) -> None:
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
        """What a lost notification or an outage left undone; and the sessions of processes that stay dead."""
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

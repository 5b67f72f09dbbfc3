"""Delivery: brings the index up to date with the items whose marks are raised."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from uuid import UUID

from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Unavailable
from openmemory.index.lease import Lease
from openmemory.index.models import Kind
from openmemory.index.port import NOBODY, IndexUnavailable
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.outbox import Claimed
from openmemory.index.sync.writer import Batch, Delivered, Source, Writer
from openmemory.resilience.circuit_breaker import CircuitBreaker, CircuitOpen, State

log = logging.getLogger(__name__)

BATCH = 128
"""Marks of one round: one embedding batch, one write to the index."""

LEASE = 120.0
"""Seconds after which another process takes over the marks of a round whose process died. While one works it renews."""

RENEW_AFTER = 30.0
"""Seconds between two renewals of a lease: a model or an index may take longer than the lease, never unnoticed."""

ALONE_AFTER = 3
"""Failed attempts after which the items of a batch are tried one by one."""

FLUSH_AFTER = 10.0
"""Seconds after which delivered points are made to survive a power cut, where the engine leaves that to us."""

FAILURES = (IndexUnavailable, EmbedderUnavailable, ValueError)
"""What writing to a space may fail with; ValueError is a vector that the index cannot take."""

IDLE = 30.0
"""Seconds between looks for marks whose deliverer died. What this process marks wakes it at once."""

QUIET = 60.0
"""Seconds between two lines of the log about the same kind of failure."""


class Deliverer:
    """Works the marks off: read the rows as they are, embed what has no vector, write the index, lower the flags.

    Two rounds of this process never overlap; those of several processes share the marks by their leases. What is
    delivered goes to the space that serves and to one that is being built; retired ones only forget it.
    """

    def __init__(
        self, database: Database, spaces: Spaces, sources: Mapping[Kind, Source], lease: Lease | None = None
    ) -> None:
        self._lease = lease or Lease()
        self._database = database
        self._spaces = spaces
        self._writer = Writer(database, sources)
        self._wake = asyncio.Event()
        self._round = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._unflushed_since: float | None = None
        self._told: dict[str, float] = {}
        self._resuming = False
        self._dropped: list[Claimed] = []
        self._index_answers = True
        self.breaker = CircuitBreaker(
            "delivery",
            trips_on=(IndexUnavailable, EmbedderUnavailable),
            probe=self._probe,
            on_close=self._resume,
        )

    def wake(self) -> None:
        """Say that marks were raised and committed."""
        self._wake.set()

    def start(self) -> None:
        """Deliver in the background until `stop`."""
        self._task = asyncio.create_task(self._run(), name="deliverer")

    async def stop(self) -> None:
        """Stop; what is unfinished stays marked."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self.breaker.close()

    async def drain(self) -> Delivered:
        """Work off every mark that is due. While the index or the model is known to be away nothing is tried."""
        total = Delivered()
        while True:
            async with self._round:
                claimed, done = await self._deliver()
            total.add(done)
            if not claimed or done.failed:
                return total

    async def ask_again(self) -> None:
        """If the index or the model is held to be away, find out now whether it still is.

        Raises:
            IndexUnavailable, EmbedderUnavailable: it is.
        """
        await self.breaker.ask_again()

    async def _run(self) -> None:
        pause: float = 0
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for may miss that it is stopped when it is woken just before
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._pick_up()
                await self.drain()
                async with self._database.statement() as tx:
                    if pause >= IDLE:
                        await outbox.mend_times(tx)
                    due = await outbox.next_due(tx)
                pause = await self._flush()
                # While it is known to be away nothing that is due is tried: what ends that wakes this up.
                if due is not None and self.breaker.state is State.CLOSED and not self._lease.lost:
                    pause = min(pause, max(0.05, due))
            except Unavailable as error:  # of which the log hears from `database`
                log.debug("delivery waits: %s", error)
                pause = 1.0
            except IndexUnavailable as error:
                self._warn("delivery waits: %s", error)
                pause = 1.0
            except Exception:
                log.exception("delivery failed; it goes on in a moment")
                pause = 1.0

    async def _flush(self) -> float:
        """Flush what was written if it has waited long enough; returns the seconds until it will have."""
        if self._unflushed_since is None:
            return IDLE
        waited = time.monotonic() - self._unflushed_since
        if waited < FLUSH_AFTER:
            return FLUSH_AFTER - waited
        self._unflushed_since = None
        await self._spaces.serving.index.flush()
        return IDLE

    async def _deliver(self) -> tuple[int, Delivered]:
        """One round, whose lock the caller holds: how many marks it took, and what became of them.

        While the model is away, what is erased or put aside still leaves the index.
        """
        away = self.breaker.state is not State.CLOSED
        if self._lease.lost or (away and not self._index_answers):
            return 0, Delivered()
        async with self._database.transaction() as tx:
            claimed = await outbox.claim(tx, limit=BATCH, lease=LEASE, gone=away, index_lease=self._lease.holder)
        if not claimed:
            return 0, Delivered()
        try:
            return len(claimed), await (self._forget if away else self._deliver_claimed)(claimed)
        except Unavailable:
            self._dropped += claimed
            raise

    async def _forget(self, claimed: list[Claimed]) -> Delivered:
        try:
            done = await self._write(claimed)
        except FAILURES as error:  # not of the index: of something that is wanted again meanwhile
            self._index_answers = not isinstance(error, IndexUnavailable)
            return await self._postpone(claimed, error)
        async with self._database.transaction() as tx:
            await outbox.settle(tx, claimed)
        return done

    async def _deliver_claimed(self, claimed: list[Claimed]) -> Delivered:
        async with self._holding(claimed):
            try:
                async with self.breaker.guard():
                    done = await self._write(claimed)
            except FAILURES as error:
                self._index_answers = not isinstance(error, IndexUnavailable)
                if min(mark.attempts for mark in claimed) >= ALONE_AFTER:
                    return await self._write_alone(claimed)
                return await self._postpone(claimed, error)
            except CircuitOpen as refused:  # opened since it was looked at
                return await self._postpone(claimed, refused)
        async with self._database.transaction() as tx:
            await outbox.settle(tx, claimed)
        return done

    async def _write_alone(self, claimed: list[Claimed]) -> Delivered:
        """Deliver one by one what failed together: a text that the model refuses must not hold up the others.

        What is refused while others are taken says nothing about the model or the index.
        """
        total = Delivered()
        for mark in claimed:
            try:
                total.add(await self._write([mark]))
            except FAILURES as error:
                total.add(await self._postpone([mark], error))
                try:
                    async with self.breaker.guard():
                        await self._probe()
                    # The vector of an older text must not stand for one that is refused.
                    await self._spaces.serving.index.delete([mark.id])
                except (*FAILURES, CircuitOpen) as away:
                    total.add(await self._postpone(claimed[claimed.index(mark) + 1 :], away))
                    break
            else:
                async with self._database.transaction() as tx:
                    await outbox.settle(tx, [mark])
        return total

    async def _write(self, claimed: list[Claimed]) -> Delivered:
        self._unflushed_since = self._unflushed_since or time.monotonic()
        done = Delivered()
        for kind in Kind:
            if ids := [mark.id for mark in claimed if mark.kind is kind]:
                done.add(await self._write_of(kind, ids))
        return done

    async def _write_of(self, kind: Kind, ids: list[UUID]) -> Delivered:
        # As they are before the rows are read: another model may take over at any moment.
        serving, building, retired = self._spaces.serving, self._spaces.building, [*self._spaces.retired]
        batch = await self._writer.read(kind, ids)
        done = await self._writer.deliver(serving, batch)
        if building is not None:
            await self._write_beside(building, batch)
        for space in retired:
            await self._forget_beside(space, ids)
        return done

    async def _write_beside(self, space: Space, batch: Batch) -> None:
        """Write to the space that is being built. Nobody searches there yet: a failure is left to the comparison."""
        try:
            await self._writer.deliver(space, batch)
        except FAILURES as error:
            space.missed += len(batch)
            self._warn("what was written does not reach the new vector index yet: %s", error)

    async def _forget_beside(self, space: Space, ids: list[UUID]) -> None:
        """What is rewritten or erased must not live on in a collection that nobody keeps up to date.

        One that is away holds up nobody: the next sync takes out of it what it should not hold.
        """
        try:
            await space.index.delete(ids)
        except IndexUnavailable as error:
            self._warn("a collection that is kept for a way back does not answer: %s", error)

    async def _probe(self) -> None:
        """Whether the model and the index would take something now."""
        space = self._spaces.serving
        await space.ask_model()
        await space.index.delete([NOBODY])

    def _resume(self) -> None:
        self._resuming = self._index_answers = True
        self.wake()

    async def _pick_up(self) -> None:
        """Make due again what waits for an outage that is over, and what a failure of Postgres left claimed."""
        if self._dropped:
            async with self._database.transaction() as tx:
                await outbox.renew(tx, self._dropped, lease=0)
            self._dropped = []
        if self._resuming:
            async with self._database.transaction() as tx:
                await outbox.end_pauses(tx)
            self._resuming = False

    @asynccontextmanager
    async def _holding(self, claimed: list[Claimed]) -> AsyncIterator[None]:
        """Renew the lease while the block runs."""
        renewing = asyncio.create_task(self._renew(claimed), name="lease")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, claimed: list[Claimed]) -> None:
        while True:
            await asyncio.sleep(RENEW_AFTER)
            try:
                async with self._database.transaction() as tx:
                    await outbox.renew(tx, claimed, lease=LEASE)
            except Unavailable as error:
                log.warning("a lease could not be renewed: %s", error)

    async def _postpone(self, claimed: list[Claimed], error: Exception) -> Delivered:
        self._warn("the vector index is behind: %s", error)
        async with self._database.transaction() as tx:
            await outbox.postpone(tx, claimed, str(error))
        return Delivered(failed=len(claimed))

    def _warn(self, what: str, error: Exception) -> None:
        """Log a failure, one of a kind once a minute: an outage is one event, however often it is met."""
        now = time.monotonic()
        if now - self._told.get(what, -QUIET) >= QUIET:
            self._told[what] = now
            log.warning(what, error)


__all__ = ["BATCH", "Delivered", "Deliverer", "Source"]

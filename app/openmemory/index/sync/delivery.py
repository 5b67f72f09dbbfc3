"""Delivery: updates the index for the items in the outbox."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from uuid import UUID

from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import Unavailable
from openmemory.index.lease import Lease
from openmemory.index.models import ItemKind
from openmemory.index.port import NOBODY, IndexUnavailable
from openmemory.index.space import Space, Spaces
from openmemory.index.sync import outbox
from openmemory.index.sync.outbox import ClaimedEntry
from openmemory.index.sync.writer import Batch, Delivered, IndexedTable, IndexWriter
from openmemory.resilience.circuit_breaker import BreakerState, CircuitBreaker, CircuitOpen

log = logging.getLogger(__name__)

BATCH = 128
"""The number of outbox entries of memories in one round: one embedding batch, one write to the index."""

ROUND = {ItemKind.MEMORY: BATCH, ItemKind.PASSAGE: 16}
"""The number of outbox entries in one round, by kind. Rounds of passages are short, so that a memory that comes
meanwhile waits for few of them. Passages are delivered when no memory is due."""

LEASE = 20.0
"""The seconds after which another process takes over the outbox entries of a round whose process ended. A running
process renews its lease."""

RENEW_AFTER = 5.0
"""The seconds between two renewals of a lease, so that a slow model or index may take longer than the lease."""

ALONE_AFTER = 3
"""The number of failed attempts after which the items of a batch are tried one by one."""

FLUSH_AFTER = 10.0
"""The seconds after which delivered points are flushed to disk, if the engine leaves that to us."""

FAILURES = (IndexUnavailable, EmbedderUnavailable, ValueError)
"""The possible failures of a write to a space. ValueError is a vector that the index cannot take."""

IDLE = 10.0
"""The seconds between checks for outbox entries whose process died. Entries from this process wake it at once."""

IMPOSSIBLE_AFTER = 30.0
"""The seconds between checks for entries whose times are impossible."""

WITHOUT_PAUSE = 8 * BATCH
"""The number of entries after which the background delivery looks at what else it has to do."""

QUIET = 60.0
"""The seconds between two log lines about the same kind of failure."""


Compare = Callable[[Space, Sequence[UUID]], Awaitable[None]]
"""Compares memories with those near to them."""


class OutboxDelivery:
    """Processes outbox entries: reads the current rows, embeds those without vectors, writes the index, deletes the
    entries.

    Two rounds of this process never overlap. Several processes share the outbox entries by their leases. Deliveries go
    to the serving space and to one that is being built. From retired ones, items are only removed.
    """

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        tables: Mapping[ItemKind, IndexedTable],
        lease: Lease | None = None,
        *,
        compare: Compare | None = None,
    ) -> None:
        """`compare` is called with memories that were written. It must not fail because of the index."""
        self._compare = compare
        self._lease = lease or Lease()
        self._database = database
        self._spaces = spaces
        self._writer = IndexWriter(database, tables)
        self._wake = asyncio.Event()
        self._round = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._unflushed_since: float | None = None
        self._warned_at: dict[str, float] = {}
        self._resuming = False
        self._dropped: list[ClaimedEntry] = []
        self._index_answers = True
        self.breaker = CircuitBreaker(
            "delivery",
            trips_on=(IndexUnavailable, EmbedderUnavailable),
            probe=self._probe,
            on_close=self._resume,
        )

    def wake(self) -> None:
        """To be called after outbox entries were written and committed."""
        self._wake.set()

    def start(self) -> None:
        """Delivers in the background until `stop`. May be called twice."""
        self._task = self._task or asyncio.create_task(self._run(), name="outbox-delivery")

    async def stop(self) -> None:
        """Stops the delivery. Unfinished items keep their outbox entries."""
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task
            self._task = None
        await self.breaker.close()

    async def drain(self, at_most: int | None = None, *, seconds: float = math.inf) -> Delivered:
        """Processes the outbox entries that are due. Tries nothing while the index or the model is known to be
        unavailable.

        Ends after `at_most` entries, or by default after those that are due now, and begins no round after `seconds`:
        an outbox that is filled as fast as it is emptied must not hold up what comes after.
        """
        before = None
        if at_most is None:
            async with self._database.statement() as tx:
                before = await outbox.now(tx)
        total, remaining, ends = Delivered(), at_most, time.monotonic() + seconds
        while remaining is None or remaining > 0:
            async with self._round:
                claimed, result = await self._deliver(before)
            total.add(result)
            remaining = None if remaining is None else remaining - claimed
            if not claimed or result.failed or time.monotonic() > ends:
                break
        return total

    async def _run(self) -> None:
        pause: float = 0
        looked_at_times = time.monotonic()
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):  # wait_for may miss a cancellation if it is woken just before
                    await self._wake.wait()
            self._wake.clear()
            try:
                await self._pick_up()
                await self.drain(WITHOUT_PAUSE)
                async with self._database.statement() as tx:
                    if time.monotonic() - looked_at_times >= IMPOSSIBLE_AFTER:
                        looked_at_times = time.monotonic()
                        await outbox.reset_impossible_times(tx)
                    due = await outbox.next_due(tx)
                pause = await self._flush()
                # During a known outage, nothing that is due is tried. Its end wakes this loop.
                if due is not None and self.breaker.state is BreakerState.CLOSED and not self._lease.lost:
                    pause = min(pause, max(0.05, due))
            except Unavailable as error:  # `database` logs this
                log.debug("delivery waits: %s", error)
                pause = 1.0
            except IndexUnavailable as error:
                self._warn("delivery waits: %s", error)
                pause = 1.0
            except Exception:
                log.exception("delivery failed; it goes on in a moment")
                pause = 1.0

    async def _flush(self) -> float:
        """Flushes written points if they have waited long enough; returns the seconds until the next check."""
        if self._unflushed_since is None:
            return IDLE
        waited = time.monotonic() - self._unflushed_since
        if waited < FLUSH_AFTER:
            return FLUSH_AFTER - waited
        self._unflushed_since = None
        await self._spaces.serving.index.flush()
        return IDLE

    async def _deliver(self, before: datetime | None = None) -> tuple[int, Delivered]:
        """Runs one round for entries that are due, or were due `before`, with the lock held by the caller.

        Returns the number of claimed outbox entries, and the result. While the model is unavailable, erased and
        archived items still leave the index.
        """
        away = self.breaker.state is not BreakerState.CLOSED
        if self._lease.lost or (away and not self._index_answers):
            return 0, Delivered()
        async with self._database.transaction() as tx:
            for kind, limit in ROUND.items():
                claimed = await outbox.claim(
                    tx,
                    kind,
                    limit=limit,
                    lease=LEASE,
                    gone=away,
                    index_lease=self._lease.holder,
                    before=before,
                )
                if claimed:
                    break
            else:
                return 0, Delivered()
        try:
            return len(claimed), await (self._forget if away else self._deliver_claimed)(claimed)
        except Unavailable:
            self._dropped += claimed
            raise

    async def _forget(self, claimed: list[ClaimedEntry]) -> Delivered:
        async with self._holding(claimed):
            try:
                result = await self._write(claimed)
            except FAILURES as error:  # not of the index: of an item that is wanted again meanwhile
                self._index_answers = not isinstance(error, IndexUnavailable)
                return await self._postpone(claimed, error)
        async with self._database.transaction() as tx:
            await outbox.complete(tx, claimed)
        return result

    async def _deliver_claimed(self, claimed: list[ClaimedEntry]) -> Delivered:
        async with self._holding(claimed):
            try:
                async with self.breaker.guard():
                    result = await self._write(claimed)
            except FAILURES as error:
                self._index_answers = not isinstance(error, IndexUnavailable)
                if min(entry.attempts for entry in claimed) >= ALONE_AFTER:
                    return await self._write_alone(claimed)
                return await self._postpone(claimed, error)
            except CircuitOpen as refused:  # opened since the last check
                return await self._postpone(claimed, refused)
        async with self._database.transaction() as tx:
            await outbox.complete(tx, claimed)
        return result

    async def _write_alone(self, claimed: list[ClaimedEntry]) -> Delivered:
        """Delivers the items of a failed batch one by one: a text that the model rejects must not block the others.

        A rejection while others are accepted is not evidence against the model or the index.
        """
        total = Delivered()
        for entry in claimed:
            try:
                total.add(await self._write([entry]))
            except FAILURES as error:
                total.add(await self._postpone([entry], error))
                try:
                    async with self.breaker.guard():
                        await self._probe()
                    # The vector of an older text must not represent one that is rejected.
                    await self._spaces.serving.index.delete([entry.id])
                except (*FAILURES, CircuitOpen) as away:
                    total.add(await self._postpone(claimed[claimed.index(entry) + 1 :], away))
                    break
            else:
                async with self._database.transaction() as tx:
                    await outbox.complete(tx, [entry])
        return total

    async def _write(self, claimed: list[ClaimedEntry]) -> Delivered:
        self._unflushed_since = self._unflushed_since or time.monotonic()
        result = Delivered()
        for kind in ItemKind:
            if ids := [entry.id for entry in claimed if entry.kind is kind]:
                result.add(await self._write_of(kind, ids))
        return result

    async def _write_of(self, kind: ItemKind, ids: list[UUID]) -> Delivered:
        # Read before the rows: another model may take over at any moment.
        serving, building, retired = self._spaces.serving, self._spaces.building, [*self._spaces.retired]
        batch = await self._writer.read(kind, ids)
        result = await self._writer.deliver(serving, batch)
        if self._compare is not None and kind is ItemKind.MEMORY and batch.points and len(ids) < BATCH:
            # A whole batch means that more waits, which goes first.
            await self._compare(serving, [point.id for point in batch.points])
        if building is not None:
            await self._write_beside(building, batch)
        for space in retired:
            await self._forget_beside(space, ids)
        return result

    async def _write_beside(self, space: Space, batch: Batch) -> None:
        """Writes to the space that is being built. No search uses it yet, so the comparison handles failures."""
        try:
            await self._writer.deliver(space, batch)
        except FAILURES as error:
            space.missed += len(batch)
            self._warn("what was written does not reach the new vector index yet: %s", error)

    async def _forget_beside(self, space: Space, ids: list[UUID]) -> None:
        """Removes rewritten and erased items from a collection that is no longer updated.

        An unavailable one blocks nothing: the next sync removes its unwanted entries.
        """
        try:
            await space.index.delete(ids)
        except IndexUnavailable as error:
            self._warn("a collection that is kept for a way back does not answer: %s", error)

    async def _probe(self) -> None:
        """Raises if the model or the index does not accept requests now."""
        space = self._spaces.serving
        await space.ask_model()
        await space.index.delete([NOBODY])

    def _resume(self) -> None:
        self._resuming = self._index_answers = True
        self.wake()

    async def _pick_up(self) -> None:
        """Makes entries due again that waited for the end of an outage, or that stayed claimed after a failure of
        PostgreSQL."""
        if self._dropped:
            async with self._database.transaction() as tx:
                await outbox.renew(tx, self._dropped, lease=0)
            self._dropped = []
        if self._resuming:
            async with self._database.transaction() as tx:
                await outbox.end_pauses(tx)
            self._resuming = False

    @asynccontextmanager
    async def _holding(self, claimed: list[ClaimedEntry]) -> AsyncIterator[None]:
        """Renews the lease while the block runs."""
        renewing = asyncio.create_task(self._renew(claimed), name="lease")
        try:
            yield
        finally:
            renewing.cancel()
            await asyncio.wait([renewing])

    async def _renew(self, claimed: list[ClaimedEntry]) -> None:
        while True:
            await asyncio.sleep(RENEW_AFTER)
            try:
                async with self._database.transaction() as tx:
                    await outbox.renew(tx, claimed, lease=LEASE)
            except Unavailable as error:  # `database` logs this once
                log.debug("a lease could not be renewed: %s", error)

    async def _postpone(self, claimed: list[ClaimedEntry], error: Exception) -> Delivered:
        self._warn("the vector index is behind: %s", error)
        async with self._database.transaction() as tx:
            await outbox.postpone(tx, claimed, str(error))
        return Delivered(failed=len(claimed))

    def _warn(self, what: str, error: Exception) -> None:
        """Logs a failure, at most once a minute for each kind: an outage is one event, no matter how often it is
        noticed."""
        now = time.monotonic()
        if now - self._warned_at.get(what, -QUIET) >= QUIET:
            self._warned_at[what] = now
            log.warning(what, error)

"""Detects that the index in use lacks data that PostgreSQL contains, or that another service holds the index lease.

A collection contains a watermark, and PostgreSQL stores the same one for its generation. Deliveries advance both, the
collection's first. A collection that was lost, or restored from older storage, has a watermark of another epoch, a
smaller one, or none. Searches then report that they may miss something, and a sync is requested, which ends by making
both watermarks equal.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import text

from openmemory.database.engine import Database
from openmemory.errors import Unavailable
from openmemory.index.lease import LOST, Lease
from openmemory.index.port import IndexUnavailable, Watermark
from openmemory.index.space import Space

log = logging.getLogger(__name__)

LAST = 2.0
"""The time limit in seconds for the last check of a process."""


class _RecordedWatermark(NamedTuple):
    """The watermark of a collection in PostgreSQL. Without an epoch, PostgreSQL has no record of the collection."""

    epoch: UUID | None
    watermark: int

    def lacks(self, watermark: Watermark | None) -> str | None:
        """The reason why a collection with this watermark may be incomplete, or None if it is complete.

        It may be one ahead: another process may be between its two writes.
        """
        if self.epoch is None:
            return None
        if watermark is None:
            return "it has not been filled yet"
        if watermark.epoch != self.epoch:
            return "it was filled for another database or another generation"
        if watermark.sequence < self.watermark:
            return "it went back to an older state"
        if watermark.sequence > self.watermark + 1:
            return "the database went back to an older state"
        return None


class IndexMonitor:
    """Compares the watermarks of collections with PostgreSQL's, and advances them."""

    def __init__(self, database: Database, lease: Lease, *, on_behind: Callable[[], None]) -> None:
        """`on_behind` is called when a collection is found to be incomplete. It must request a sync."""
        self._database = database
        self.lease = lease
        self._on_behind = on_behind

    async def connected(self, space: Space, watermark: Watermark | None) -> Watermark | None:
        """Checks a collection's watermark after its index has connected to it.

        Returns the watermark of a new collection that is complete, because everything it should contain is still in the
        outbox. While PostgreSQL is unavailable, nothing can be decided; the next `check` does that.
        """
        try:
            if watermark is None and (beginning := await self._beginning(space)) is not None:
                space.behind = None
                return beginning
            record = await self._read_watermark(space)
            self._record(space, record.lacks(watermark))
        except Unavailable as error:
            log.debug("%s cannot be checked now: %s", space.collection, error)
        return None

    async def check(self, space: Space) -> None:
        """Checks the collection in use, and advances its watermark after deliveries.

        If the index does not answer, the circuit breaker handles it.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        if not space.collection:
            return
        try:
            await space.index.renew()
            # Checked twice, because another process may advance both between the two reads.
            reason = await self._lacking(space) and await self._lacking(space)
            self._record(space, reason)
            if space.behind is None and space.unconfirmed and not self.lease.lost:
                await self.advance(space)
        except IndexUnavailable as error:
            log.debug("%s cannot be checked now: %s", space.collection, error)

    async def finish(self, space: Space) -> None:
        """Advances the watermark at the end of a process, if that is possible at once.

        Otherwise the next start finds the collection behind, and compares it.
        """
        if space.unconfirmed:
            with suppress(Unavailable, TimeoutError):
                async with asyncio.timeout(LAST):
                    await self.check(space)

    async def confirm(self, space: Space, before: Watermark | None) -> None:
        """Records that a collection contains everything that PostgreSQL contained when its watermark was `before`.

        Raises:
            IndexUnavailable: the index does not answer, or went back to an older state meanwhile.
        """
        record = await self._read_watermark(space)
        watermark = await space.index.watermark()
        if before is not None and not _follows(watermark, before):
            raise IndexUnavailable(f"{space.collection} went back to an older state while it was compared")
        if space.unconfirmed or record.lacks(watermark):
            await self.advance(space)
        space.behind = None

    async def advance(self, space: Space) -> None:
        """Writes the next watermark into the collection, after everything delivered to it, and then into PostgreSQL."""
        space.unconfirmed = False
        try:
            record = await self._read_watermark(space)
            if record.epoch is None:
                return
            following = Watermark(record.epoch, record.watermark + 1)
            await space.index.set_watermark(following)
            async with self._database.transaction() as tx:
                await tx.execute(_ADVANCE, {"collection": space.collection, "watermark": following.sequence})
        except BaseException:
            space.unconfirmed = True
            raise

    async def _lacking(self, space: Space) -> str | None:
        record = await self._read_watermark(space)  # read before the collection's own, which is advanced first
        return record.lacks(await space.index.watermark())

    def _record(self, space: Space, reason: str | None) -> None:
        if reason is not None and space.behind is None and not self.lease.lost:
            log.warning(
                "the index %s lacks data that PostgreSQL has (%s); a sync was requested", space.collection, reason
            )
            space.behind = reason
            self._on_behind()
        space.behind = reason

    def _record_holder(self, holder: str | None) -> None:
        lost = self.lease.holder is not None and holder != self.lease.holder
        if lost == self.lease.is_elsewhere:
            return
        self.lease.is_elsewhere = lost
        if lost:
            log.error("%s: searches find by words alone, and nothing is delivered, until that one ends", LOST)
        else:
            log.warning("the index lease is this service's again")
            self._on_behind()

    async def _read_watermark(self, space: Space) -> _RecordedWatermark:
        async with self._database.statement() as tx:
            row: Any = (await tx.execute(_READ_WATERMARK, {"collection": space.collection})).one()
        self._record_holder(row.holder)
        return _RecordedWatermark(row.epoch, row.watermark or 0)

    async def _beginning(self, space: Space) -> Watermark | None:
        async with self._database.statement() as tx:
            if await tx.scalar(_DELIVERED):
                return None
        record = await self._read_watermark(space)
        return None if record.epoch is None else Watermark(record.epoch, record.watermark)


def _follows(watermark: Watermark | None, before: Watermark) -> bool:
    return watermark is not None and watermark.epoch == before.epoch and watermark.sequence >= before.sequence


_READ_WATERMARK = text(
    """
    SELECT l.holder, g.epoch, g.watermark
    FROM (SELECT) AS one
    LEFT JOIN index_lease AS l ON true
    LEFT JOIN index_generations AS g ON g.collection = :collection
    """
)
_DELIVERED = text(
    """
    SELECT EXISTS (
        SELECT FROM memories AS m
        WHERE m.state = 'active' AND NOT EXISTS (SELECT FROM index_outbox AS o WHERE o.kind = 'memory' AND o.id = m.id)
    )
    """
)
_ADVANCE = text(
    """
    UPDATE index_generations SET watermark = greatest(watermark, :watermark) WHERE collection = :collection
    """
)

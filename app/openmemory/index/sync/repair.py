"""Repairs differences: writes items to a space in bulk, in parallel with deliveries."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from uuid import UUID

from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.index.models import ItemKind
from openmemory.index.port import IndexUnavailable
from openmemory.index.space import Space
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import OutboxDelivery
from openmemory.index.sync.diff import ComparedSection
from openmemory.index.sync.writer import Batch, Delivered, IndexWriter

log = logging.getLogger(__name__)


class Repair:
    """Writes many items without outbox entries, by `prepare`, `put` and `verify`. Nothing is queued, so no delivery
    waits.

    A delivery of the same item may run meanwhile, and its newer text could be overwritten with the one that was read
    here. So every page is checked again after it was written. Items that changed since they were read get an outbox
    entry, and are delivered after it. A change that is committed later writes its own outbox entry, so its delivery
    also comes later.
    """

    def __init__(self, database: Database, writer: IndexWriter, outbox_delivery: OutboxDelivery) -> None:
        self._database = database
        self._writer = writer
        self._outbox_delivery = outbox_delivery

    async def prepare(self, space: Space, kind: ItemKind, ids: Sequence[UUID]) -> AsyncGenerator[Batch, None]:
        """Reads the current rows with their vectors, in parts. Items that the model rejects get an outbox entry and are
        counted.

        Raises:
            IndexUnavailable, EmbedderUnavailable: the index or the model does not answer.
        """
        batch = await self._writer.read(kind, ids, documents=await space.index.keeps_documents())
        async with aclosing(self._fill(space, batch)) as parts:
            async for part in parts:
                yield part

    async def put(self, space: Space, batch: Batch) -> None:
        """Writes prepared items to the space.

        Raises:
            IndexUnavailable: the index does not answer, or takes no vectors of this size; some may be written.
        """
        try:
            await self._writer.write(space, batch)
        except ValueError as error:
            # A vector of another size: the model changed since the collection was created.
            raise IndexUnavailable(str(error)) from error

    async def verify(self, batch: Batch) -> None:
        """Writes outbox entries for items that changed since they were read. To be called after they were written."""
        if changed := await self._writer.changed(batch):
            await self._mark(batch.kind, changed)

    async def remove_stray(self, space: Space, part: ComparedSection) -> int:
        """Removes unwanted and outdated entries from a space, which needs no model; returns their number.

        Removed items that should be in the index get an outbox entry.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        if ids := [*part.stray, *part.outdated]:
            await space.index.delete(ids)
            for kind in ItemKind:
                if current_ids := await self._writer.current_ids(kind, ids):
                    await self._mark(kind, current_ids)
        return len(ids)

    async def _fill(self, space: Space, batch: Batch) -> AsyncGenerator[Batch, None]:
        """The batch with vectors, in parts, without the items that the model rejects."""
        remaining = {point.id: point for point in batch.points}
        gone = batch.gone
        try:
            async with aclosing(self._writer.filled(space, batch)) as parts:
                async for part in parts:
                    for id_ in part.ids:
                        remaining.pop(id_, None)
                    gone = []
                    yield part
            return
        except EmbedderUnavailable as error:
            await space.ask_model()
            if len(remaining) == 1:
                [id_] = remaining
                log.warning("no vector could be made of %s %s: %s", batch.kind.value, id_, error)
                # The vector of an older text must not represent it meanwhile.
                await space.index.delete([id_])
                await self._mark(batch.kind, [id_])
                yield Batch(batch.kind, [], gone, Delivered(failed=1))
                return
        # Some texts are rejected: bisection finds them without a request for each.
        points = [*remaining.values()]
        half = len(points) // 2
        for some in (Batch(batch.kind, points[:half], gone), Batch(batch.kind, points[half:])):
            async with aclosing(self._fill(space, some)) as parts:
                async for part in parts:
                    yield part

    async def _mark(self, kind: ItemKind, ids: Sequence[UUID]) -> None:
        async with self._database.transaction() as tx:
            await outbox.add_entries(tx, kind, ids)
        self._outbox_delivery.wake()

"""Repairing what differs: items are written to a space in bulk, beside whatever is being delivered."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from uuid import UUID

from app.database import Database
from app.embeddings.port import EmbedderUnavailable
from app.index import marks
from app.index.deliver import Deliverer
from app.index.models import Kind
from app.index.space import Space
from app.index.writing import Batch, Delivered, Writer

log = logging.getLogger(__name__)

KNOWN_GOOD = "The quick brown fox jumps over the lazy dog."
"""A text that every model takes: if it refuses this one too, the model is away rather than the texts odd."""


class Repair:
    """Writes many items without marks: nothing is queued, and no delivery waits behind them.

    A delivery of the same item may run meanwhile, and its newer text could be overwritten with the one that was read
    here. So every page is looked at again after it was written: what changed since it was read is marked, and delivered
    after it. A change that is committed later raises its own mark, so that its delivery comes later too.
    """

    def __init__(self, database: Database, writer: Writer, deliverer: Deliverer) -> None:
        self._database = database
        self._writer = writer
        self._deliverer = deliverer

    async def write(self, space: Space, kind: Kind, ids: Sequence[UUID]) -> Delivered:
        """Make the space hold of these items what Postgres says. Those that the model refuses are marked and counted.

        Raises:
            IndexUnavailable, EmbedderUnavailable: the index or the model does not answer; some may be written.
        """
        return await self.finish(space, await self.read(kind, ids))

    async def read(self, kind: Kind, ids: Sequence[UUID]) -> Batch:
        """The first half of `write`: the rows as they are now."""
        return await self._writer.read((kind, id_) for id_ in ids)

    async def finish(self, space: Space, batch: Batch) -> Delivered:
        """The second half of `write`."""
        done = await self._write(space, batch)
        for kind, changed in (await self._writer.changed(batch)).items():
            await self._mark(kind, changed)
        return done

    async def _write(self, space: Space, batch: Batch) -> Delivered:
        try:
            return await self._writer.write(space, batch)
        except (EmbedderUnavailable, ValueError) as error:
            await space.embedder.inner.query(KNOWN_GOOD)
            if len(batch.items) == 1 and not batch.gone:
                kind, item = batch.items[0]
                log.warning("no vector could be made of %s %s: %s", kind.value, item.id, error)
                await self._mark(kind, [item.id])
                return Delivered(failed=1)
        # Some of the texts are refused: halves find them without asking for each alone.
        half = len(batch.items) // 2
        total = await self._write(space, Batch(batch.items[:half], batch.gone))
        total.add(await self._write(space, Batch(batch.items[half:])))
        return total

    async def _mark(self, kind: Kind, ids: Sequence[UUID]) -> None:
        async with self._database.transaction() as tx:
            await marks.mark_dirty(tx, kind, ids)
        self._deliverer.wake()

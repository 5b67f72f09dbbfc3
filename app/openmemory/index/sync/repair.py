"""Repairing what differs: items are written to a space in bulk, beside whatever is being delivered."""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from uuid import UUID

from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.index.models import Kind
from openmemory.index.port import IndexUnavailable
from openmemory.index.space import Space
from openmemory.index.sync import outbox
from openmemory.index.sync.delivery import Deliverer
from openmemory.index.sync.diff import Compared
from openmemory.index.sync.writer import Batch, Delivered, Writer

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Loaded:
    """Items with their vectors, to be written, and what was `done` with them so far."""

    batch: Batch
    done: Delivered


class Repair:
    """Writes many items without marks, by `prepare`, `put`, `verify`: nothing is queued, no delivery waits behind them.

    A delivery of the same item may run meanwhile, and its newer text could be overwritten with the one that was read
    here. So every page is looked at again after it was written: what changed since it was read is marked, and delivered
    after it. A change that is committed later raises its own mark, so that its delivery comes later too.
    """

    def __init__(self, database: Database, writer: Writer, deliverer: Deliverer) -> None:
        self._database = database
        self._writer = writer
        self._deliverer = deliverer

    async def prepare(self, space: Space, kind: Kind, ids: Sequence[UUID]) -> AsyncGenerator[Loaded, None]:
        """The rows as they are now, with their vectors, in parts. What the model refuses is marked and counted.

        Raises:
            IndexUnavailable, EmbedderUnavailable: the index or the model does not answer.
        """
        batch = await self._writer.read(kind, ids, documents=await space.index.keeps_documents())
        async with aclosing(self._filled(space, batch)) as parts:
            async for loaded in parts:
                yield loaded

    async def put(self, space: Space, loaded: Loaded) -> None:
        """Make the space hold what was read.

        Raises:
            IndexUnavailable: the index does not answer, or takes no vectors of this size; some may be written.
        """
        try:
            loaded.done.add(await self._writer.write(space, loaded.batch))
        except ValueError as error:
            # A vector of another size: the model changed since the collection was made.
            raise IndexUnavailable(str(error)) from error

    async def verify(self, loaded: Loaded) -> None:
        """Mark what changed since it was read: to be called after it was written."""
        if changed := await self._writer.changed(loaded.batch):
            await self._mark(loaded.batch.kind, changed)

    async def weed(self, space: Space, kind: Kind, part: Compared) -> int:
        """Take out of a space what it should not hold or holds outdated, which needs no model; returns how many.

        What it should hold is marked, be it outdated or wanted again meanwhile.

        Raises:
            IndexUnavailable: the index does not answer.
        """
        if ids := [*part.stray, *part.outdated]:
            await space.index.delete(ids)
            if wanted := await self._writer.wanted(kind, ids):
                await self._mark(kind, wanted)
        return len(ids)

    async def _filled(self, space: Space, batch: Batch) -> AsyncGenerator[Loaded, None]:
        """The batch with vectors, in parts without what the model refuses."""
        left = {point.id: point for point in batch.points}
        gone = batch.gone
        try:
            async with aclosing(self._writer.filled(space, batch)) as parts:
                async for part in parts:
                    for id_ in part.ids:
                        left.pop(id_, None)
                    gone = []
                    yield Loaded(part, Delivered())
            return
        except EmbedderUnavailable as error:
            await space.ask_model()
            if len(left) == 1:
                [id_] = left
                log.warning("no vector could be made of %s %s: %s", batch.kind.value, id_, error)
                # The vector of an older text must not stand for it meanwhile.
                await space.index.delete([id_])
                await self._mark(batch.kind, [id_])
                yield Loaded(Batch(batch.kind, [], gone), Delivered(failed=1))
                return
        # Some of the texts are refused: halves find them without asking for each alone.
        points = [*left.values()]
        half = len(points) // 2
        for some in (Batch(batch.kind, points[:half], gone), Batch(batch.kind, points[half:])):
            async with aclosing(self._filled(space, some)) as parts:
                async for loaded in parts:
                    yield loaded

    async def _mark(self, kind: Kind, ids: Sequence[UUID]) -> None:
        async with self._database.transaction() as tx:
            await outbox.mark_dirty(tx, kind, ids)
        self._deliverer.wake()

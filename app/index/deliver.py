"""Delivery: brings the index up to date with the items whose marks are raised."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol
from uuid import UUID

import numpy as np
from sqlalchemy import func, select, text

from app.database import Database, Tx
from app.embeddings.port import Embedder, EmbedderUnavailable
from app.errors import Unavailable
from app.index import marks
from app.index.marks import Claimed
from app.index.models import Embedding, Kind
from app.index.port import Entry, IndexUnavailable, Point, Vector, VectorIndex

log = logging.getLogger(__name__)

BATCH = 128
"""Marks of one round: one embedding batch, one write to the index."""

LEASE = 120.0
"""Seconds that a round may take before another process takes its marks over: longer than every timeout in it."""

ALONE_AFTER = 3
"""Failed attempts after which the items of a batch are tried one by one."""

FLUSH_AFTER = 10.0
"""Seconds after which delivered points are made to survive a power cut, where the engine leaves that to us."""

_FAILURES = (IndexUnavailable, EmbedderUnavailable, ValueError)
"""What a delivery may fail with; ValueError is a vector that the index cannot take."""

IDLE = 30.0
"""Seconds between looks for marks whose deliverer died. What this process marks wakes it at once."""


@dataclass(frozen=True, slots=True)
class Item:
    """What the index is to hold of one row."""

    id: UUID
    user: UUID
    user_name: str
    app: UUID
    namespace: str
    kind: str
    revision: int
    created_at: datetime
    updated_at: datetime
    text: str
    text_hash: str
    categories: tuple[str, ...]


class Source(Protocol):
    """A table whose rows are searchable."""

    async def items(self, tx: Tx, ids: Sequence[UUID]) -> list[Item]:
        """Those of the rows that the index should hold now; the others are to leave it."""
        ...

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> list[Entry]:
        """A page of what the index should hold, in ascending order of id."""
        ...


@dataclass(slots=True)
class Delivered:
    """What a round, or several, did."""

    written: int = 0
    deleted: int = 0
    embedded: int = 0
    failed: int = 0

    def add(self, other: Delivered) -> None:
        self.written += other.written
        self.deleted += other.deleted
        self.embedded += other.embedded
        self.failed += other.failed


class Deliverer:
    """Works the marks off: read the rows as they are, embed what has no vector, write the index, lower the flags.

    Two rounds of this process never overlap; those of several processes share the marks by their leases.
    """

    def __init__(
        self, database: Database, index: VectorIndex, embedder: Embedder, sources: Mapping[Kind, Source]
    ) -> None:
        self._database = database
        self._index = index
        self._embedder = embedder
        self._sources = sources
        self._wake = asyncio.Event()
        self._round = asyncio.Lock()
        self._task: asyncio.Task[None] | None = None
        self._unflushed_since: float | None = None

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

    async def drain(self) -> Delivered:
        """Work off every mark that is due."""
        total = Delivered()
        while True:
            async with self._round:
                claimed, done = await self._deliver()
            total.add(done)
            if not claimed or done.failed:
                return total

    async def redeliver(self, kind: Kind, ids: Sequence[UUID]) -> Delivered:
        """Mark items and work off every mark that is due, so that what was done counts here and nowhere else."""
        total = Delivered()
        async with self._round:
            async with self._database.transaction() as tx:
                await marks.mark_dirty(tx, kind, ids)
            while True:
                claimed, done = await self._deliver()
                total.add(done)
                if not claimed or done.failed:
                    return total

    async def _run(self) -> None:
        pause: float = 0
        while True:
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
            try:
                await self.drain()
                async with self._database.statement() as tx:
                    due = await marks.next_due(tx)
                pause = IDLE if due is None else min(IDLE, max(0.05, due))
                pause = min(pause, await self._flush())
            except (Unavailable, IndexUnavailable) as error:
                # Of an outage of PostgreSQL the log hears from `database`, once.
                log.log(
                    logging.DEBUG if isinstance(error, Unavailable) else logging.WARNING, "delivery waits: %s", error
                )
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
        await self._index.flush()
        return IDLE

    async def _deliver(self) -> tuple[int, Delivered]:
        """One round, whose lock the caller holds: how many marks it took, and what became of them."""
        async with self._database.transaction() as tx:
            claimed = await marks.claim(tx, limit=BATCH, lease=LEASE)
        if not claimed:
            return 0, Delivered()
        try:
            done = await self._write(claimed)
        except _FAILURES as error:
            if len(claimed) > 1 and min(mark.attempts for mark in claimed) >= ALONE_AFTER:
                return len(claimed), await self._write_alone(claimed)
            return len(claimed), await self._postpone(claimed, error)
        async with self._database.transaction() as tx:
            await marks.settle(tx, claimed)
        return len(claimed), done

    async def _write_alone(self, claimed: list[Claimed]) -> Delivered:
        """Deliver one by one what failed together: a text that the model refuses must not hold up the others."""
        total = Delivered()
        for mark in claimed:
            try:
                total.add(await self._write([mark]))
            except _FAILURES as error:
                total.add(await self._postpone([mark], error))
            else:
                async with self._database.transaction() as tx:
                    await marks.settle(tx, [mark])
        return total

    async def _postpone(self, claimed: list[Claimed], error: Exception) -> Delivered:
        log.warning("%d items wait for the vector index: %s", len(claimed), error)
        async with self._database.transaction() as tx:
            await marks.postpone(tx, claimed, str(error))
        return Delivered(failed=len(claimed))

    async def _write(self, claimed: list[Claimed]) -> Delivered:
        items: list[tuple[Kind, Item]] = []
        stored: dict[tuple[Kind, UUID], Vector] = {}
        size = 4 * await self._embedder.dimension()
        async with self._database.statement() as tx:
            for kind, source in self._sources.items():
                if ids := [mark.id for mark in claimed if mark.kind is kind]:
                    found = await source.items(tx, ids)
                    items += [(kind, item) for item in found]
                    stored |= await self._vectors(tx, kind, found, size)
        missing = [(kind, item) for kind, item in items if (kind, item.id) not in stored]
        if missing:
            vectors = await self._embedder.documents([item.text for _, item in missing])
            fresh = {(kind, item.id): vector for (kind, item), vector in zip(missing, vectors, strict=True)}
            async with self._database.transaction() as tx:
                await self._keep(tx, missing, fresh)
            stored |= fresh
        self._unflushed_since = self._unflushed_since or time.monotonic()
        present = {item.id for _, item in items}
        gone = [mark.id for mark in claimed if mark.id not in present]
        if gone:
            await self._index.delete(gone)
        if items:
            await self._index.upsert([_point(item, stored[kind, item.id]) for kind, item in items])
        return Delivered(written=len(items), deleted=len(gone), embedded=len(missing))

    async def _vectors(self, tx: Tx, kind: Kind, items: list[Item], size: int) -> dict[tuple[Kind, UUID], Vector]:
        """The vectors kept in Postgres, if they have `size` bytes, of those items whose text is still the same."""
        if not items:
            return {}
        hashes = {item.id: item.text_hash for item in items}
        query = select(Embedding.id, Embedding.text_hash, Embedding.vector).where(
            Embedding.kind == kind.value,
            Embedding.model == self._embedder.model,
            Embedding.id == func.any(list(hashes)),
        )
        return {
            (kind, row.id): np.frombuffer(row.vector, dtype="<f4")
            for row in await tx.execute(query)
            if row.text_hash == hashes[row.id] and len(row.vector) == size
        }

    async def _keep(self, tx: Tx, items: list[tuple[Kind, Item]], vectors: dict[tuple[Kind, UUID], Vector]) -> None:
        await tx.execute(
            _KEEP,
            {
                "model": self._embedder.model,
                "kinds": [kind.value for kind, _ in items],
                "ids": [item.id for _, item in items],
                "hashes": [item.text_hash for _, item in items],
                "vectors": [np.asarray(vectors[kind, item.id], dtype="<f4").tobytes() for kind, item in items],
            },
        )


_KEEP = text(
    """
    INSERT INTO embeddings (kind, id, model, text_hash, vector)
    SELECT e.kind, e.id, :model, e.hash, e.vector
    FROM unnest(CAST(:kinds AS text[]), CAST(:ids AS uuid[]), CAST(:hashes AS text[]), CAST(:vectors AS bytea[]))
        AS e(kind, id, hash, vector)
    WHERE e.kind <> 'memory' OR EXISTS (SELECT FROM memories AS m WHERE m.id = e.id FOR KEY SHARE)
    ON CONFLICT (kind, id, model) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, created_at = now()
    """
)
"""An item erased while it was embedded must not leave its vector behind: the row is held while the vector is kept."""


def _point(item: Item, vector: Vector) -> Point:
    return Point(
        id=item.id,
        vector=vector,
        user=item.user,
        user_name=item.user_name,
        app=item.app,
        namespace=item.namespace,
        kind=item.kind,
        revision=item.revision,
        created_at=item.created_at,
        updated_at=item.updated_at,
        text=item.text,
        text_hash=item.text_hash,
        categories=item.categories,
    )

"""Writing items into a space: the rows as they are now, their kept or fresh vectors, the index."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol
from uuid import UUID

import numpy as np
from sqlalchemy import text

from app.database import Database, Tx
from app.index.entries import Entries, array_of
from app.index.models import Kind
from app.index.port import NO_VECTOR, Point
from app.index.space import Space
from app.prepared import Prepared

EMBEDDED_TOGETHER = 128
"""Texts whose vectors are kept before the next are made: what a failure or the end of the process can cost."""


class Source(Protocol):
    """A table whose rows are searchable."""

    async def points(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """Those of the rows that the index should hold now, without vectors and documents; the others are to leave."""
        ...

    async def documents(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """The same with their documents."""
        ...

    async def revisions(self, tx: Tx, ids: Sequence[UUID]) -> list[int | None]:
        """The revision of each row, in the order of the ids.

        None for those that the index should not hold now.
        """
        ...

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> Entries:
        """A page of what the index should hold, in ascending order of id."""
        ...

    async def count(self, tx: Tx, *, user: UUID | None) -> int:
        """How many rows the index should hold now."""
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


@dataclass(slots=True)
class Batch:
    """Rows of one kind as they were read: `points`, without vectors, belong into the index, those of `gone` do not."""

    kind: Kind
    points: list[Point]
    gone: list[UUID] = field(default_factory=list)

    @property
    def ids(self) -> list[UUID]:
        """Those of the points, and then those that are gone."""
        return [*(point.id for point in self.points), *self.gone]

    def replace(self, old: Sequence[Point], new: Sequence[Point]) -> None:
        """Put points that were read again in the place of older ones; those that were not found any more are gone."""
        found = {point.id: point for point in new}
        stale = {point.id for point in old}
        self.gone += [id_ for id_ in stale if id_ not in found]
        self.points = [point for point in self.points if point.id not in stale] + [*new]

    def __len__(self) -> int:
        return len(self.points) + len(self.gone)


class Writer:
    """Reads items from Postgres and writes them to the index of a space. Network and transactions never overlap."""

    def __init__(self, database: Database, sources: Mapping[Kind, Source]) -> None:
        self._database = database
        self._sources = sources

    async def read(self, kind: Kind, ids: Sequence[UUID], *, documents: bool = True) -> Batch:
        """The rows as they are now. Without `documents` those of the points that need one are read by `fill`."""
        source = self._sources[kind]
        async with self._database.statement() as tx:
            points = await (source.documents if documents else source.points)(tx, ids)
        if len(points) == len(ids):
            return Batch(kind, points)
        present = {point.id for point in points}
        return Batch(kind, points, [id_ for id_ in ids if id_ not in present])

    async def fill(self, space: Space, batch: Batch) -> int:
        """Give every point of a batch its vector of the space's model; returns how many had to be embedded.

        Raises:
            EmbedderUnavailable: the model does not answer, or refuses a text. Those that it made are kept.
        """
        if not batch.points:
            return 0
        if not (missing := await self._without_kept(space, batch)):
            return 0
        if bare := [point for point in missing if point.document is None]:
            async with self._database.statement() as tx:
                again = await self._sources[batch.kind].documents(tx, [point.id for point in bare])
            batch.replace(bare, again)
            missing = [point for point in missing if point.document is not None] + again
        for start in range(0, len(missing), EMBEDDED_TOGETHER):
            await self._embed(space, batch.kind, missing[start : start + EMBEDDED_TOGETHER])
        return len(missing)

    async def _without_kept(self, space: Space, batch: Batch) -> list[Point]:
        """The points that have no kept vector of the model and of their text; the others get theirs."""
        size = 4 * await space.dimension()
        async with self._database.statement() as tx:
            [(places, hashes, kept)] = await _KEPT.rows(
                tx, {"ids": array_of(batch.ids), "kind": batch.kind.value, "model": space.model, "size": size}
            )
        for point in batch.points:
            point.vector = NO_VECTOR
        if places:
            vectors = np.frombuffer(kept, dtype="<f4").reshape(-1, size // 4)
            for place, text_hash, vector in zip(places, hashes.split(","), vectors, strict=True):
                # The vectors of what is gone are no use; those of an older text are none either.
                if place <= len(batch.points) and (point := batch.points[place - 1]).text_hash == text_hash:
                    point.vector = vector
        return [point for point in batch.points if point.vector is NO_VECTOR]

    async def _embed(self, space: Space, kind: Kind, points: Sequence[Point]) -> None:
        texts = [point.document.text for point in points if point.document is not None]
        for point, vector in zip(points, await space.embedder.documents(texts), strict=True):
            point.vector = vector
        await self._keep(kind, space.model, points)

    async def write(self, space: Space, batch: Batch) -> Delivered:
        """Make the space's index hold the filled points of a batch and not what is gone.

        Raises:
            IndexUnavailable: the index does not do it; some may be done.
            ValueError: a vector that it cannot take; nothing is written.
        """
        if batch.gone:
            await space.index.delete(batch.gone)
        if batch.points:
            await space.index.upsert(batch.points)
        return Delivered(written=len(batch.points), deleted=len(batch.gone))

    async def deliver(self, space: Space, batch: Batch) -> Delivered:
        """`fill` and `write`. What is gone leaves the index before a model is asked, which may be away."""
        deleted = await self.write(space, Batch(batch.kind, [], batch.gone))
        known = len(batch.gone)
        embedded = await self.fill(space, batch)
        done = await self.write(space, Batch(batch.kind, batch.points, batch.gone[known:]))
        done.add(deleted)
        done.embedded = embedded
        return done

    async def wanted(self, kind: Kind, ids: Sequence[UUID]) -> list[UUID]:
        """Those of the items that the index should hold now."""
        async with self._database.statement() as tx:
            revisions = await self._sources[kind].revisions(tx, ids)
        return [id_ for id_, revision in zip(ids, revisions, strict=True) if revision is not None]

    async def changed(self, batch: Batch) -> list[UUID]:
        """What is not as it was when the batch was read: a delivery of it may have come before the batch's writing."""
        ids = batch.ids
        async with self._database.statement() as tx:
            now = await self._sources[batch.kind].revisions(tx, ids)
        then = [*(point.revision for point in batch.points), *(None for _ in batch.gone)]
        return [id_ for id_, revision, before in zip(ids, now, then, strict=True) if revision != before]

    async def _keep(self, kind: Kind, model: str, points: Sequence[Point]) -> None:
        async with self._database.transaction() as tx:
            await tx.execute(
                _KEEP,
                {
                    "model": model,
                    "kind": kind.value,
                    "ids": [point.id for point in points],
                    "hashes": [point.text_hash for point in points],
                    "vectors": [np.asarray(point.vector, dtype="<f4").tobytes() for point in points],
                },
            )


# One row with all vectors in one value: the server would send thousands in pieces of 8 kB, each of which wakes us up.
# The three aggregates see the rows in one order, whatever it is.
_KEPT = Prepared(
    text(
        """
        SELECT array_agg(wanted.place), string_agg(e.text_hash, ','), string_agg(e.vector, '')
        FROM unnest(CAST(:ids AS uuid[])) WITH ORDINALITY AS wanted(id, place)
        JOIN embeddings AS e ON e.kind = :kind AND e.id = wanted.id AND e.model = :model
        WHERE length(e.vector) = :size
        """
    ),
    plain=True,
    binary=True,
)

_KEEP = text(
    """
    INSERT INTO embeddings (kind, id, model, text_hash, vector)
    SELECT CAST(:kind AS text), e.id, :model, e.hash, e.vector
    FROM unnest(CAST(:ids AS uuid[]), CAST(:hashes AS text[]), CAST(:vectors AS bytea[])) AS e(id, hash, vector)
    WHERE CAST(:kind AS text) <> 'memory' OR EXISTS (SELECT FROM memories AS m WHERE m.id = e.id FOR KEY SHARE)
    ON CONFLICT (kind, id, model) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, created_at = now()
    """
)
"""An item erased while it was embedded must not leave its vector behind: the row is held while the vector is kept."""

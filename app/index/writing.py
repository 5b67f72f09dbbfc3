"""Writing items into a space: the rows as they are now, their kept or fresh vectors, the index."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

import numpy as np
from sqlalchemy import bindparam, func, select, text

from app.database import Database, Tx
from app.index.models import Embedding, Kind
from app.index.port import Entry, Point, Vector
from app.index.space import Space
from app.prepared import Prepared

EMBEDDED_TOGETHER = 128
"""Texts whose vectors are kept before the next are made: what a failure or the end of the process can cost."""


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

    async def revisions(self, tx: Tx, ids: Sequence[UUID]) -> dict[UUID, int]:
        """The revisions of those of the rows that the index should hold now."""
        ...

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> list[Entry]:
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
    """Rows as they were read: `items` belong into the index, the ids of `gone` do not."""

    items: list[tuple[Kind, Item]] = field(default_factory=list)
    gone: list[UUID] = field(default_factory=list)


class Writer:
    """Reads items from Postgres and writes them to the index of a space. Network and transactions never overlap."""

    def __init__(self, database: Database, sources: Mapping[Kind, Source]) -> None:
        self._database = database
        self._sources = sources

    async def read(self, ids: Iterable[tuple[Kind, UUID]]) -> Batch:
        """The rows as they are now."""
        batch = Batch()
        wanted: dict[Kind, list[UUID]] = {}
        for kind, id_ in ids:
            wanted.setdefault(kind, []).append(id_)
        async with self._database.statement() as tx:
            for kind, some in wanted.items():
                found = await self._sources[kind].items(tx, some)
                batch.items += [(kind, item) for item in found]
                present = {item.id for item in found}
                batch.gone += [id_ for id_ in some if id_ not in present]
        return batch

    async def write(self, space: Space, batch: Batch) -> Delivered:
        """Make the space's index hold the items of a batch and not what is gone.

        Raises:
            IndexUnavailable, EmbedderUnavailable, ValueError: the index or the model does not do it; some may be done.
        """
        vectors = await self._kept(space, batch.items)
        missing = [(kind, item) for kind, item in batch.items if (kind, item.id) not in vectors]
        for start in range(0, len(missing), EMBEDDED_TOGETHER):
            some = missing[start : start + EMBEDDED_TOGETHER]
            fresh = await space.embedder.documents([item.text for _, item in some])
            made = {(kind, item.id): vector for (kind, item), vector in zip(some, fresh, strict=True)}
            await self._keep(space.model, some, made)
            vectors |= made
        if batch.gone:
            await space.index.delete(batch.gone)
        if batch.items:
            await space.index.upsert([_point(item, vectors[kind, item.id]) for kind, item in batch.items])
        return Delivered(written=len(batch.items), deleted=len(batch.gone), embedded=len(missing))

    async def changed(self, batch: Batch) -> dict[Kind, list[UUID]]:
        """What is not as it was when the batch was read: a delivery of it may have come before the batch's writing."""
        written: dict[Kind, dict[UUID, int]] = {}
        for kind, item in batch.items:
            written.setdefault(kind, {})[item.id] = item.revision
        found: dict[Kind, list[UUID]] = {}
        async with self._database.statement() as tx:
            for kind, source in self._sources.items():
                before = written.get(kind, {})
                now = await source.revisions(tx, [*before, *batch.gone])
                other = [id_ for id_, revision in before.items() if now.get(id_) != revision]
                other += [id_ for id_ in batch.gone if id_ in now]
                if other:
                    found[kind] = other
        return found

    async def _kept(self, space: Space, items: Sequence[tuple[Kind, Item]]) -> dict[tuple[Kind, UUID], Vector]:
        """The vectors kept in Postgres, if they have the right size, of those items whose text is still the same."""
        if not items:
            return {}
        size = 4 * await space.dimension()
        hashes = {(kind, item.id): item.text_hash for kind, item in items}
        found: dict[tuple[Kind, UUID], Vector] = {}
        async with self._database.statement() as tx:
            for kind in {kind for kind, _ in items}:
                ids = [item.id for of, item in items if of is kind]
                for row in await _KEPT.rows(tx, {"kind": kind.value, "model": space.model, "ids": ids}):
                    key = (kind, row.id)
                    if row.text_hash == hashes[key] and len(row.vector) == size:
                        found[key] = np.frombuffer(row.vector, dtype="<f4")
        return found

    async def _keep(
        self, model: str, items: Sequence[tuple[Kind, Item]], vectors: Mapping[tuple[Kind, UUID], Vector]
    ) -> None:
        async with self._database.transaction() as tx:
            await tx.execute(
                _KEEP,
                {
                    "model": model,
                    "kinds": [kind.value for kind, _ in items],
                    "ids": [item.id for _, item in items],
                    "hashes": [item.text_hash for _, item in items],
                    "vectors": [np.asarray(vectors[kind, item.id], dtype="<f4").tobytes() for kind, item in items],
                },
            )


_KEPT = Prepared(
    select(Embedding.id, Embedding.text_hash, Embedding.vector).where(
        Embedding.kind == bindparam("kind"),
        Embedding.model == bindparam("model"),
        Embedding.id == func.any(bindparam("ids")),
    )
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

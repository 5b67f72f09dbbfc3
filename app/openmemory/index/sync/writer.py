"""Writes items to a space: reads the current rows, their stored or new vectors, and updates the index."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol
from uuid import UUID

import numpy as np
from sqlalchemy import text

from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database, Tx
from openmemory.database.sql_files import load_sql
from openmemory.embeddings.chunks import stored_as
from openmemory.embeddings.port import Codes
from openmemory.index import tokens
from openmemory.index.entries import IndexEntries, array_of
from openmemory.index.models import ItemKind
from openmemory.index.port import NO_VECTORS, Point
from openmemory.index.space import Space

EMBEDDED_TOGETHER = 128
"""The number of texts that are embedded before their vectors are stored: the maximum loss after a failure or a stop."""

MAX_READ_BYTES = 32 * 1024 * 1024
"""The bytes of stored vectors that are read at once: 20,000 vectors of 384 numbers, or one text of 32 chunks of
65,536."""


class Text(NamedTuple):
    """The text of an item, and the hash that identifies its vectors."""

    hash: str
    text: str


class Version(NamedTuple):
    """The state of a row in an index: its revision, and its categories, since category assignment changes no
    revision."""

    revision: int
    categories: frozenset[UUID]


class IndexedTable(Protocol):
    """A table whose rows are searchable."""

    async def points(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """The rows that the index should contain now, without vectors and documents. The others are to be removed."""
        ...

    async def documents(self, tx: Tx, ids: Sequence[UUID]) -> list[Point]:
        """The same with their documents."""
        ...

    async def versions(self, tx: Tx, ids: Sequence[UUID]) -> list[Version | None]:
        """The current version of each row, in the order of the ids, to detect changes.

        None for rows that the index should not contain now.
        """
        ...

    async def texts(self, tx: Tx, ids: Sequence[UUID]) -> dict[UUID, Text]:
        """The texts of the rows, also of those that the index should not contain."""
        ...

    async def entries(self, tx: Tx, *, user: UUID | None, after: UUID | None, limit: int) -> IndexEntries:
        """A page of the entries that the index should contain, in ascending order of id."""
        ...

    async def count(self, tx: Tx, *, user: UUID | None) -> int:
        """The number of rows that the index should contain now."""
        ...


@dataclass(slots=True)
class Delivered:
    """The counts of one or several delivery rounds."""

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
    """Rows of one kind as they were read. `points`, without vectors, belong into the index; those of `gone` do not."""

    kind: ItemKind
    points: list[Point]
    gone: list[UUID] = field(default_factory=list)
    result: Delivered = field(default_factory=Delivered)
    """The counts of what was done with them so far."""

    @property
    def ids(self) -> list[UUID]:
        """The ids of the points, and then those that are gone."""
        return [*(point.id for point in self.points), *self.gone]

    def replace(self, old: Sequence[Point], new: Sequence[Point]) -> None:
        """Replaces points with those that were read again. Those that no longer exist are gone."""
        by_id = {point.id: point for point in new}
        stale = {point.id for point in old}
        self.gone += [id_ for id_ in stale if id_ not in by_id]
        self.points = [point for point in self.points if point.id not in stale] + [*new]

    def __len__(self) -> int:
        return len(self.points) + len(self.gone)


class IndexWriter:
    """Reads items from PostgreSQL and writes them to the index of a space. Network calls and transactions never
    overlap."""

    def __init__(self, database: Database, tables: Mapping[ItemKind, IndexedTable]) -> None:
        self._database = database
        self._tables = tables

    async def read(self, kind: ItemKind, ids: Sequence[UUID], *, documents: bool = True) -> Batch:
        """Reads the current rows. Without `documents`, `fill` reads them for the points that need one."""
        table = self._tables[kind]
        async with self._database.statement() as tx:
            points = await (table.documents if documents else table.points)(tx, ids)
        if len(points) == len(ids):
            return Batch(kind, points)
        present = {point.id for point in points}
        return Batch(kind, points, [id_ for id_ in ids if id_ not in present])

    async def filled(self, space: Space, batch: Batch) -> AsyncGenerator[Batch, None]:
        """The batch with the vectors of the space's model, in parts, so that a bounded number of vectors is held.

        Rows that are gone come with the first part, before the model is called.

        Raises:
            EmbedderUnavailable: the model does not answer, or rejects a text. Vectors made before are stored.
        """
        remaining, gone = batch.points, batch.gone
        while remaining or gone:
            beyond = await self._fill_stored_vectors(space, batch.kind, remaining) if remaining else 0
            here, remaining = remaining[:beyond], remaining[beyond:]
            missing = [point for point in here if point.vectors is NO_VECTORS]
            ready = [point for point in here if point.vectors is not NO_VECTORS] if missing else here
            if ready or gone:
                yield Batch(batch.kind, ready, gone)
                gone = []
            for start in range(0, len(missing), EMBEDDED_TOGETHER):
                yield await self._embed(space, batch.kind, missing[start : start + EMBEDDED_TOGETHER])

    async def _fill_stored_vectors(self, space: Space, kind: ItemKind, points: Sequence[Point]) -> int:
        """Sets the stored vectors of the points' texts for the model, or `NO_VECTORS` if there are none.

        Returns the number of points that were handled, within the limit of vectors to hold at once.
        """
        dimension = await space.dimension()
        size = 4 * dimension
        async with self._database.statement() as tx:
            [(places, hashes, lengths, blob, beyond)] = await _STORED_VECTORS.rows(
                tx,
                {
                    "ids": array_of(point.id for point in points),
                    "kind": kind.value,
                    "model": space.model,
                    "size": size,
                    "chunking": f"% of {dimension}",
                    "most": MAX_READ_BYTES,
                },
            )
        for point in points:
            point.vectors = NO_VECTORS
        if places:
            vectors, at = np.frombuffer(blob, dtype="<f4").reshape(-1, dimension), 0
            for place, text_hash, length in zip(places, hashes.split(","), lengths, strict=True):
                chunks = length // size
                # The vectors of an older text are useless.
                if (point := points[place - 1]).text_hash == text_hash:
                    point.vectors = vectors[at : at + chunks]
                at += chunks
        return len(points) if beyond is None else int(beyond) - 1

    async def _embed(self, space: Space, kind: ItemKind, points: list[Point]) -> Batch:
        """Embeds the points and stores their vectors."""
        batch = Batch(kind, points)
        if bare := [point for point in points if point.document is None]:
            async with self._database.statement() as tx:
                again = await self._tables[kind].documents(tx, [point.id for point in bare])
            batch.replace(bare, again)
        texts = [point.document.text for point in batch.points if point.document is not None]
        if texts:
            embeddings = await space.embedder.documents(texts)
            for point, one in zip(batch.points, embeddings, strict=True):
                point.vectors = one.chunks
            await self._keep(kind, space, batch.points, [one.tokens for one in embeddings if one.tokens is not None])
        batch.result.embedded = len(texts)
        return batch

    async def write(self, space: Space, batch: Batch) -> Delivered:
        """Writes the filled points of a batch to the space's index and removes those that are gone.

        Raises:
            IndexUnavailable: the index fails; some changes may be done.
            ValueError: a vector that it cannot take; nothing is written.
        """
        try:
            if batch.gone:
                await space.index.delete(batch.gone)
            if batch.points:
                await space.index.upsert(batch.points)
        finally:  # a failed write may be partial
            space.unconfirmed = True
        batch.result.written, batch.result.deleted = len(batch.points), len(batch.gone)
        return batch.result

    async def deliver(self, space: Space, batch: Batch) -> Delivered:
        """Calls `filled` and `write`. Rows that are gone leave the index before the model is called, which may be
        unavailable."""
        result = Delivered()
        async with aclosing(self.filled(space, batch)) as parts:
            async for part in parts:
                result.add(await self.write(space, part))
        return result

    async def current_ids(self, kind: ItemKind, ids: Sequence[UUID]) -> list[UUID]:
        """Those of the items that the index should contain now."""
        async with self._database.statement() as tx:
            versions = await self._tables[kind].versions(tx, ids)
        return [id_ for id_, version in zip(ids, versions, strict=True) if version is not None]

    async def changed(self, batch: Batch) -> list[UUID]:
        """The items that changed since the batch was read: their delivery may have come before the batch was
        written."""
        ids = batch.ids
        async with self._database.statement() as tx:
            now = await self._tables[batch.kind].versions(tx, ids)
        read = (Version(point.revision, frozenset(point.categories)) for point in batch.points)
        then = [*read, *(None for _ in batch.gone)]
        return [id_ for id_, version, before in zip(ids, now, then, strict=True) if version != before]

    async def _keep(self, kind: ItemKind, space: Space, points: Sequence[Point], codes: Sequence[Codes]) -> None:
        """Stores the vectors of points, and the token vectors `codes`: of each, or of none."""
        async with self._database.transaction() as tx:
            await tx.execute(
                _KEEP[kind],
                {
                    "model": space.model,
                    "chunking": stored_as(space.embedder.chunking, points[0].vectors.shape[1]),
                    "kind": kind.value,
                    "ids": [point.id for point in points],
                    "hashes": [point.text_hash for point in points],
                    "vectors": [np.asarray(point.vectors, dtype="<f4").tobytes() for point in points],
                },
            )
            if codes:
                await tokens.keep(tx, kind, space.model, [(point.id, point.text_hash) for point in points], codes)


_STORED_VECTORS = CompiledStatement(
    text(load_sql(__name__, "stored_vectors")),
    plain=True,
    binary=True,
)

_KEEP_ONE = """
    INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)
    SELECT CAST(:kind AS text), e.id, :model, e.hash, e.vector, :chunking
    FROM unnest(CAST(:ids AS uuid[]), CAST(:hashes AS text[]), CAST(:vectors AS bytea[])) AS e(id, hash, vector)
    WHERE EXISTS (SELECT FROM {table} AS t WHERE t.id = e.id FOR KEY SHARE)
    ON CONFLICT (kind, id, model) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, chunking = excluded.chunking, created_at = now()
"""
"""An item erased while it was embedded must not leave its vector behind: its row is locked while the vector is
stored."""
_KEEP = {kind: text(_KEEP_ONE.format(table=kind.table)) for kind in ItemKind}

"""The embedded index: Qdrant's own engine in this process, one shard in one folder.

Its calls run in threads: `READERS` for searches and one for writes, so that a long write or flush never keeps a search
waiting for a thread.
"""

from __future__ import annotations

import asyncio
import logging
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar, cast
from uuid import UUID

import qdrant_edge as edge

from app.index.collections import RECONCILED, TENANT, check_vectors, collection_name, entry_of, payload_of
from app.index.durable import replace_file
from app.index.engine import CHUNK, READERS, buffer, in_thread, with_codes
from app.index.mapped import release_mapped
from app.index.port import Entry, Filter, Hit, IndexStatus, IndexUnavailable, Point, Vector
from app.index.room import check_room
from app.index.shards import holds_a_shard, open_shard

log = logging.getLogger(__name__)

T = TypeVar("T")


class EdgeIndex:
    """A `VectorIndex` in `<folder>/<collection>`; `<folder>/current` names the collection that is in use.

    One process owns the folder: another one that opens it is refused.
    """

    def __init__(self, folder: Path, *, collection: str, model: str, dimension: int) -> None:
        self._folder = folder
        self._name = collection_name(collection, model, dimension)
        self._dimension = dimension
        self._shard: edge.EdgeShard | None = None
        self._closed = False
        self._closing = asyncio.Lock()
        self._readers = ThreadPoolExecutor(READERS, "index-read")
        self._writer = ThreadPoolExecutor(1, "index-write")

    async def open(self) -> None:
        """Load the shard, or create it; one that cannot be loaded is moved aside and an empty one takes its place."""
        await self._run(self._writer, self._open)

    async def upsert(self, points: Sequence[Point]) -> None:
        check_vectors((point.vector for point in points), self._dimension)
        shard = await self._opened()
        for start in range(0, len(points), CHUNK):
            await self._run(self._writer, _upsert, self._folder, shard, points[start : start + CHUNK])

    async def delete(self, ids: Sequence[UUID]) -> None:
        shard = await self._opened()
        if ids:
            await self._run(self._writer, _delete, self._folder, shard, ids)

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        check_vectors((vector,), self._dimension)
        shard = await self._opened()
        if limit < 1:
            return []
        return await self._run(self._readers, _search, shard, vector, where, limit)

    async def entries(self, user: UUID | None = None, *, page: int = 2_000) -> AsyncIterator[list[Entry]]:
        after: edge.PointId | None = None
        while True:
            shard = await self._opened()
            found, after = await self._run(self._readers, _page, shard, user, after, page)
            if found:
                yield found
            if after is None:
                return

    async def count(self, user: UUID | None = None) -> int:
        shard = await self._opened()
        request = edge.CountRequest(exact=True, filter=_owned_by(user))
        return await self._run(self._readers, shard.count, request)

    async def flush(self) -> None:
        shard = await self._opened()
        await self._run(self._writer, self._flush, shard)

    async def status(self) -> IndexStatus:
        return IndexStatus(
            engine="qdrant-edge",
            version=version("qdrant-edge-py"),
            collection=self._name,
            dimension=self._dimension,
            points=await self.count(),
        )

    async def activate(self) -> None:
        """Make this the collection in use, and remove the one that was: called when this one is complete."""
        await self._opened()
        await self._run(self._writer, self._activate)

    async def close(self) -> None:
        async with self._closing:
            if self._closed:
                return
            self._closed = True
            # Both pools finish what they were given: a search that was accepted still finds its shard open.
            await asyncio.to_thread(self._readers.shutdown)
            try:
                await self._run(self._writer, self._flush_and_close)
            finally:
                await asyncio.to_thread(self._writer.shutdown)

    async def _opened(self) -> edge.EdgeShard:
        if self._shard is None:
            await self.open()
        if self._shard is None:
            raise IndexUnavailable("the index is closed")
        return self._shard

    async def _run(self, pool: ThreadPoolExecutor, call: Callable[..., T], *args: object) -> T:
        return await in_thread(pool, call, *args)

    def _open(self) -> None:
        # Runs to its end even if who asked for it was cancelled, so the shard is kept here and not where it is awaited.
        if self._closed:
            raise IndexUnavailable("the index is closed")
        if self._shard is not None:
            return
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        shard = open_shard(self._folder / self._name, self._dimension)
        if not (self._folder / "current").exists():
            self._write_current()
        release_mapped(self._folder / self._name)
        self._shard = shard

    def _flush(self, shard: edge.EdgeShard) -> None:
        shard.flush()
        release_mapped(self._folder / self._name)

    def _flush_and_close(self) -> None:
        shard, self._shard = self._shard, None
        if shard is not None:
            try:
                shard.flush()
            finally:
                shard.close()

    def _activate(self) -> None:
        current = self._folder / "current"
        before = current.read_text(encoding="utf-8").strip() if current.exists() else self._name
        if before == self._name:
            return
        self._write_current()
        # Names from a file are not trusted with the removal of anything but a shard of this folder.
        old = self._folder / Path(before).name
        if holds_a_shard(old):
            shutil.rmtree(old)
            log.info("the vector index moved from %s to %s", before, self._name)

    def _write_current(self) -> None:
        replace_file(self._folder / "current", f"{self._name}\n".encode())


def _upsert(folder: Path, shard: edge.EdgeShard, points: Sequence[Point]) -> None:
    check_room(folder, sum(point.vector.nbytes + 4 * len(point.text) for point in points))
    written = [edge.Point(point.id, buffer(point.vector), payload_of(point)) for point in points]
    shard.update(edge.UpdateOperation.upsert_points(written))


def _delete(folder: Path, shard: edge.EdgeShard, ids: Sequence[UUID]) -> None:
    check_room(folder)
    shard.update(edge.UpdateOperation.delete_points(list(ids)))


def _search(shard: edge.EdgeShard, vector: Vector, where: Filter, limit: int) -> list[Hit]:
    request = edge.SearchRequest(
        query=edge.Query.Nearest(buffer(vector)),
        filter=_filter(where),
        limit=limit,
        offset=0,
        params=with_codes(limit),
        with_payload=False,
        with_vector=False,
    )
    return [Hit(cast(UUID, hit.id), min(1.0, max(-1.0, hit.score))) for hit in shard.search(request)]


def _page(
    shard: edge.EdgeShard, user: UUID | None, after: edge.PointId | None, limit: int
) -> tuple[list[Entry], edge.PointId | None]:
    request = edge.ScrollRequest(
        offset=after, limit=limit, filter=_owned_by(user), with_payload=list(RECONCILED), with_vector=False
    )
    records, following = shard.scroll(request)
    return [entry_of(record.id, record.payload) for record in records if isinstance(record.id, UUID)], following


def _owned_by(user: UUID | None) -> edge.Filter | None:
    return None if user is None else _filter(Filter(user))


def _filter(where: Filter) -> edge.Filter:
    must: list[edge.ConditionType] = [edge.FieldCondition(key=TENANT, match=edge.MatchValue(str(where.user)))]
    for key, wanted in (("namespace", where.namespaces), ("kind", where.kinds), ("app", where.apps)):
        if wanted:
            must.append(edge.FieldCondition(key=key, match=edge.MatchAny([str(value) for value in wanted])))
    return edge.Filter(must=must, must_not=[edge.HasIdCondition(set(where.excluded))] if where.excluded else None)

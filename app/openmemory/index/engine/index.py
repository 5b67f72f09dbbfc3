"""The embedded index: Qdrant's own engine in this process, one shard in one folder."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncGenerator, Sequence
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import qdrant_edge as edge

from openmemory.access.rules import Rules
from openmemory.index.collections import (
    OWNER,
    RECONCILED,
    RESERVED,
    WATERMARK,
    check_query,
    check_vectors,
    entry_of,
    owner_of,
    owner_payload,
    payload_of,
    points_of,
    reserved_vector,
    watermark_of,
    watermark_payload,
)
from openmemory.index.conditions import conditions_of, readable
from openmemory.index.engine.calls import CHUNK, buffer, guarded, sparse, with_codes
from openmemory.index.engine.mapped_memory import release_mapped
from openmemory.index.engine.rest_format import one_condition
from openmemory.index.engine.shards import Shard, VectorLayout
from openmemory.index.entries import IndexEntries
from openmemory.index.multi_vector import MORE, WORDS, best, chunks, vectors_by_name
from openmemory.index.port import (
    NO_WORDS,
    Accept,
    CollectionState,
    Connected,
    Filter,
    Hit,
    IndexStatus,
    IndexUnavailable,
    Point,
    SparseVector,
    Vector,
    Watermark,
    chunks_of,
)
from openmemory.resilience.atomic_files import replacing

SLICE = 64
"""The number of points that are converted before the event loop continues, 1 to 3 ms."""

RELEASE_AFTER = 5_000
"""The number of written points after which their pages are released, 3 ms of work for 10 MB."""

_SAMPLE = 100
"""The number of points that are looked at in a collection that names neither owner nor watermark."""

FLUSH_AFTER = 20_000
"""The number of written points after which they are flushed, 100 ms of work that blocks the whole process."""


class EdgeIndex:
    """A `VectorIndex` in `<folder>/<collection>`; `<folder>/current` names the collection that is in use.

    One process owns the folder. Another process cannot open it.
    """

    def __init__(
        self,
        folder: Path,
        *,
        collection: str,
        dimension: int,
        accept: Accept | None = None,
        on_connected: Connected | None = None,
    ) -> None:
        self._accept = accept
        self._on_connected = on_connected
        self._folder = folder
        self._name = collection
        self._shape = VectorLayout(dimension, plain=False)
        self._shard: Shard | None = None
        self._closed = False
        self._unreleased = 0
        self._unflushed = 0

    async def open(self) -> None:
        """Loads the shard, or creates it. A shard that cannot be loaded is moved aside, and an empty one replaces
        it."""
        if self._closed:
            raise IndexUnavailable("the index is closed")
        if self._shard is not None:
            return
        shard = Shard(self._folder / self._name, self._shape)
        try:
            await self._take(shard)
        except BaseException:
            shard.close()
            raise
        self._shard = shard
        if not (self._folder / "current").exists():
            self._write_current()
        if self._on_connected is not None and (beginning := await self._on_connected(await self.watermark())):
            await self.set_watermark(beginning)

    async def renew(self) -> None:
        await self._take(await self._open())

    async def _take(self, shard: Shard) -> None:
        """Has the owner of the collection decided, before anything else is written there, and writes it."""
        if self._accept is None:
            return
        state = _read_state(shard)
        if state.owner is None and state.watermark is None:
            with guarded():
                some, _ = shard.engine.scroll(edge.ScrollRequest(limit=_SAMPLE, with_payload=False, with_vector=False))
            ids = tuple(UUID(int=it.id) if isinstance(it.id, int) else UUID(str(it.id)) for it in some)
            # One process has the folder, so an empty collection is nobody else's.
            state = state._replace(ids=ids, created=not ids)
        owner = await self._accept(state)
        if owner != state.owner:
            self._write_reserved(shard, OWNER, owner_payload(owner))

    def _write_reserved(self, shard: Shard, id_: int, payload: dict[str, Any]) -> None:
        vectors: Any = {"": buffer(reserved_vector(self._shape.dimension)), WORDS: sparse(NO_WORDS)}
        shard.write(edge.UpdateOperation.upsert_points([edge.Point(id_, vectors, payload)]), long=False)

    async def keeps_documents(self) -> bool:
        return False

    async def upsert(self, points: Sequence[Point]) -> None:
        check_vectors([point.vectors for point in points], self._shape.dimension)
        for chunk in chunks(points, chunks_of, CHUNK):
            update = edge.UpdateOperation.upsert_points(await _convert(chunk))
            shard = await self._open()
            size = sum(point.vectors.nbytes for point in chunk)
            shard.write(update, size=size, long=any(chunks_of(point) > 1 for point in chunk))
            await asyncio.sleep(0)
        self._tidy(sum(map(chunks_of, points)))

    def _tidy(self, size: int) -> None:
        """Limits the work of the next flush, and the memory for written data."""
        self._unreleased += size
        self._unflushed += size
        if self._shard is None:
            return
        if self._unflushed >= FLUSH_AFTER:
            self._flush(self._shard)
        elif self._unreleased >= RELEASE_AFTER:
            self._unreleased = 0
            release_mapped(self._folder / self._name)

    async def delete(self, ids: Sequence[UUID]) -> None:
        shard = await self._open()
        if ids:
            points = cast("list[edge.PointId]", points_of(ids))
            shard.write(edge.UpdateOperation.delete_points(points), long=False)

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        check_query(vector, self._shape.dimension)
        shard = await self._open()
        if limit < 1 or where.nothing:
            return []
        with guarded():
            return _nearest(shard, vector, where, limit)

    async def search_words(self, words: SparseVector, where: Filter, limit: int) -> list[Hit]:
        shard = await self._open()
        if limit < 1 or where.nothing or not len(words.indices):
            return []
        with guarded():
            return _search(shard, edge.Query.Nearest(sparse(words), using=WORDS), _filter(where), limit)

    async def entries(self, user: UUID | None = None, *, page: int = 2_000) -> AsyncGenerator[IndexEntries, None]:
        after: edge.PointId | None = None
        while True:
            shard = await self._open()
            with guarded():
                entries, after = _page(shard, user, after, page)
            await asyncio.sleep(0)
            if entries:
                yield entries
            if after is None:
                return

    async def count(self, user: UUID | None = None) -> int:
        shard = await self._open()
        with guarded():
            counted = shard.engine.count(edge.CountRequest(exact=True, filter=_owner_filter(user)))
            return counted - (len(shard.engine.retrieve([*RESERVED], False, False)) if user is None else 0)

    async def watermark(self) -> Watermark | None:
        return _read_state(await self._open()).watermark

    async def set_watermark(self, watermark: Watermark) -> None:
        self._write_reserved(await self._open(), WATERMARK, watermark_payload(watermark))

    async def flush(self) -> None:
        self._flush(await self._open())

    async def status(self) -> IndexStatus:
        return IndexStatus(
            engine="qdrant-edge",
            version=version("qdrant-edge-py"),
            collection=self._name,
            dimension=self._shape.dimension,
            points=await self.count(),
        )

    async def activate(self) -> None:
        """Makes this the collection that `current` names."""
        await self._open()
        if not self._is_current():
            self._write_current()

    async def drop(self) -> None:
        if self._is_current():
            raise IndexUnavailable(f"{self._name} is the collection in use")
        await self.close()
        await asyncio.to_thread(shutil.rmtree, self._folder / self._name, ignore_errors=True)

    async def close(self) -> None:
        shard, self._shard, self._closed = self._shard, None, True
        if shard is not None:
            shard.close()

    async def _open(self) -> Shard:
        if self._shard is None:
            await self.open()
        if self._shard is None:
            raise IndexUnavailable("the index is closed")
        return self._shard

    def _flush(self, shard: Shard) -> None:
        self._unreleased = self._unflushed = 0
        shard.flush()

    def _is_current(self) -> bool:
        current = self._folder / "current"
        return current.exists() and current.read_text(encoding="utf-8").strip() == self._name

    def _write_current(self) -> None:
        with guarded(), replacing(self._folder / "current") as file:
            file.write(f"{self._name}\n".encode())


def _read_state(shard: Shard) -> CollectionState:
    """The owner and the watermark of a collection."""
    with guarded():
        records = shard.engine.retrieve([*RESERVED], True, False)
    payloads = {record.id: record.payload for record in records}
    return CollectionState(owner_of(payloads.get(OWNER)), watermark_of(payloads.get(WATERMARK)))


async def _convert(points: Sequence[Point]) -> list[edge.Point]:
    """Converts the points to the engine's form.

    Converting a point releases the GIL several times: each string of the payload is first tried as three other types.
    In a separate thread, it would wait for the event loop's thread each time.
    """
    result: list[edge.Point] = []
    for start in range(0, len(points), SLICE):
        if start:
            await asyncio.sleep(0)
        some = points[start : start + SLICE]
        result += [edge.Point(point.id, _vectors(point), payload_of(point)) for point in some]
    return result


def _vectors(point: Point) -> Any:
    words = sparse(point.words)
    if len(point.vectors) == 1:
        return {"": buffer(point.vectors[0]), WORDS: words}
    return {**vectors_by_name(point.vectors), WORDS: words}


def _nearest(shard: Shard, vector: Vector, where: Filter, limit: int) -> list[Hit]:
    query = edge.Query.Nearest(buffer(vector), using="")
    first = _search(shard, query, _filter(where), limit, with_codes(limit))
    if (only := shard.long_texts()) is not None:
        query = edge.Query.Nearest(buffer(vector), using=MORE)
        first = best(first, _search(shard, query, _filter(where, only), limit, with_codes(limit)), limit)
    return [Hit(id_, min(1.0, max(-1.0, score))) for id_, score in first]


def _search(
    shard: Shard, query: edge.Query, where: edge.Filter, limit: int, params: edge.SearchParams | None = None
) -> list[Hit]:
    request = edge.SearchRequest(
        query=query, filter=where, limit=limit, offset=0, params=params, with_payload=False, with_vector=False
    )
    return [Hit(cast(UUID, hit.id), hit.score) for hit in shard.engine.search(request)]


def _page(
    shard: Shard, user: UUID | None, after: edge.PointId | None, limit: int
) -> tuple[IndexEntries, edge.PointId | None]:
    request = edge.ScrollRequest(
        offset=after, limit=limit, filter=_owner_filter(user), with_payload=list(RECONCILED), with_vector=False
    )
    records, following = shard.engine.scroll(request)
    # Every access to a record's id creates it anew.
    pairs = cast(list[tuple[UUID | int, Any]], [(record.id, record.payload) for record in records])
    return IndexEntries(b"".join([entry_of(*one) for one in pairs if one[0] not in RESERVED])), following


def _owner_filter(user: UUID | None) -> edge.Filter | None:
    return None if user is None else _filter(Filter(user))


def _filter(where: Filter, only: Sequence[edge.ConditionType] = ()) -> edge.Filter:
    must, must_not, should = conditions_of(where)
    readable_must, readable_must_not = _readable(where.rules)
    listed = [] if where.ids is None else [edge.HasIdCondition(set(where.ids))]
    return edge.Filter(
        must=[*map(one_condition, must), *listed, *only, *readable_must] or None,
        must_not=[*map(one_condition, must_not), *readable_must_not] or None,
        should=[*map(one_condition, should)] or None,
    )


@lru_cache(maxsize=64)
def _readable(rules: Rules) -> tuple[list[edge.ConditionType], list[edge.ConditionType]]:
    """Cached, because converting a thousand ids to the engine's form takes a millisecond."""
    must, must_not, _ = readable(rules)
    return [one_condition(it) for it in must], [one_condition(it) for it in must_not]

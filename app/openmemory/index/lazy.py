"""An index that is opened on first use, and again after a failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from uuid import UUID

from openmemory.index.entries import IndexEntries
from openmemory.index.port import (
    Filter,
    Hit,
    IndexStatus,
    IndexUnavailable,
    Point,
    SparseVector,
    Vector,
    VectorIndex,
    Watermark,
)

RETRY_AFTER = 2.0
"""The seconds after a failed open during which it is not tried again."""


class LazyIndex:
    """A placeholder for an index whose engine, or whose model's dimension, is not available yet.

    The service starts without them. Until the index opens, every method raises `IndexUnavailable`.
    """

    def __init__(self, opening: Callable[[], Awaitable[VectorIndex]]) -> None:
        self._opening = opening
        self._index: VectorIndex | None = None
        self._under_way: asyncio.Task[VectorIndex] | None = None
        self._failed_at = -RETRY_AFTER
        self._failure = IndexUnavailable()
        self._closed = False

    async def open(self) -> None:
        """Opens the index now. Raises `IndexUnavailable` if that fails."""
        await self._get()

    async def renew(self) -> None:
        """See `VectorIndex`, also for the methods below."""
        self._failed_at = -RETRY_AFTER  # what it failed for may have been decided
        await (self._index or await self._get()).renew()

    async def keeps_documents(self) -> bool:
        return await (self._index or await self._get()).keeps_documents()

    async def upsert(self, points: Sequence[Point]) -> None:
        await (self._index or await self._get()).upsert(points)

    async def delete(self, ids: Sequence[UUID]) -> None:
        await (self._index or await self._get()).delete(ids)

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        return await (self._index or await self._get()).search(vector, where, limit)

    async def search_words(self, words: SparseVector, where: Filter, limit: int) -> list[Hit]:
        return await (self._index or await self._get()).search_words(words, where, limit)

    async def entries(self, user: UUID | None = None, *, page: int = 2_000) -> AsyncGenerator[IndexEntries, None]:
        async for entries in (await self._get()).entries(user, page=page):
            yield entries

    async def count(self, user: UUID | None = None) -> int:
        return await (self._index or await self._get()).count(user)

    async def watermark(self) -> Watermark | None:
        return await (self._index or await self._get()).watermark()

    async def set_watermark(self, watermark: Watermark) -> None:
        await (self._index or await self._get()).set_watermark(watermark)

    async def activate(self) -> None:
        await (self._index or await self._get()).activate()

    async def drop(self) -> None:
        index = self._index or await self._get()
        self._closed = True
        await index.drop()

    async def flush(self) -> None:
        await (self._index or await self._get()).flush()

    async def status(self) -> IndexStatus:
        return await (self._index or await self._get()).status()

    async def close(self) -> None:
        self._closed = True
        if self._under_way is not None:
            await asyncio.wait([self._under_way])
        if self._index is not None:
            await self._index.close()

    async def _get(self) -> VectorIndex:
        if self._index is not None:
            return self._index
        if self._closed:
            raise IndexUnavailable("the index is closed")
        if time.monotonic() - self._failed_at < RETRY_AFTER:
            raise self._failure.with_traceback(None)
        if self._under_way is None:
            self._under_way = asyncio.create_task(self._open_once())
            # Marks its exception as retrieved, even if nobody waits for it any more.
            self._under_way.add_done_callback(lambda task: task.cancelled() or task.exception())
        # A waiting caller may be cancelled: the opening continues for the others.
        return await asyncio.shield(self._under_way)

    async def _open_once(self) -> VectorIndex:
        try:
            self._index = await self._opening()
        except IndexUnavailable as error:
            self._failed_at, self._failure = time.monotonic(), error
            raise
        finally:
            self._under_way = None
        return self._index

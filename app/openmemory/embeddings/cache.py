"""A cache of query embeddings for any embedder."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from openmemory.embeddings.port import Embedder, QueryEmbedding, TextEmbedding


class CachedEmbedder:
    """Caches the embeddings of the `size` most recently used queries.

    Identical concurrent queries cost one embedding, which is cancelled once every waiting caller has given up. Callers
    share the arrays, so they are read-only. Failures are not cached.
    """

    def __init__(self, inner: Embedder, size: int = 4096) -> None:
        self.inner = inner
        self.model = inner.model
        self.chunking = inner.chunking
        self.tokenwise = inner.tokenwise
        self._size = size
        self._made: OrderedDict[str, QueryEmbedding] = OrderedDict()
        self._running: dict[str, _Run] = {}

    async def dimension(self) -> int:
        """The length of a vector."""
        return await self.inner.dimension()

    def known(self, text: str) -> QueryEmbedding | None:
        """Returns the cached embedding of the query, read-only, or None."""
        if (found := self._made.get(text)) is not None:
            self._made.move_to_end(text)
        return found

    async def query(self, text: str) -> QueryEmbedding:
        """Returns the embedding of the query, read-only."""
        if (known := self.known(text)) is not None:
            return known
        if (run := self._running.get(text)) is None:
            run = self._running[text] = _Run(asyncio.create_task(self.inner.query(text)))
            run.task.add_done_callback(lambda _: self._finished(text, run))
        run.waiting += 1
        try:
            # A caller that gives up must not cancel the embedding for others who wait for the same text.
            return await asyncio.shield(run.task)
        finally:
            run.waiting -= 1
            if not run.waiting and not run.task.done():
                # The next caller starts a new embedding.
                self._running.pop(text)
                run.task.cancel()

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        """Embeds stored texts, without the cache."""
        return await self.inner.documents(texts)

    async def chunks(self, texts: Sequence[str]) -> list[int]:
        """The number of chunks of each text."""
        return await self.inner.chunks(texts)

    async def close(self) -> None:
        """Clears the cache and closes the embedder."""
        self._made.clear()
        await self.inner.close()

    def _finished(self, text: str, run: _Run) -> None:
        if self._running.get(text) is run:
            self._running.pop(text)
        # Reading the exception also marks it as retrieved if every caller has given up.
        if run.task.cancelled() or run.task.exception() is not None:
            return
        made = run.task.result()
        for array in (made.vector, made.tokens):
            if array is not None:
                array.flags.writeable = False
        self._made[text] = made
        while len(self._made) > self._size:
            self._made.popitem(last=False)


@dataclass(slots=True)
class _Run:
    """A running embedding, and the number of callers that wait for it."""

    task: asyncio.Task[QueryEmbedding]
    waiting: int = 0

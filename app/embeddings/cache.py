"""A cache of what an embedder makes of queries, in front of any."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

from app.embeddings.port import Document, Embedder, Question


class CachedEmbedder:
    """Remembers what was made of the `size` most recently used queries; identical queries at once cost one embedding.

    The arrays are shared between callers and therefore read-only. Failures are not remembered.
    """

    def __init__(self, inner: Embedder, size: int = 4096) -> None:
        self.inner = inner
        self.model = inner.model
        self.cutting = inner.cutting
        self.tokenwise = inner.tokenwise
        self._size = size
        self._made: OrderedDict[str, Question] = OrderedDict()
        self._running: dict[str, asyncio.Task[Question]] = {}

    async def dimension(self) -> int:
        """Length of a vector."""
        return await self.inner.dimension()

    def known(self, text: str) -> Question | None:
        """The query's vectors if it needs no embedding, read-only."""
        if (found := self._made.get(text)) is not None:
            self._made.move_to_end(text)
        return found

    async def query(self, text: str) -> Question:
        """The query's vectors, read-only."""
        if (known := self.known(text)) is not None:
            return known
        if (task := self._running.get(text)) is None:
            task = self._running[text] = asyncio.create_task(self.inner.query(text))
            task.add_done_callback(lambda done: self._finished(text, done))
        # A caller that gives up must not take the vectors away from those who wait for the same text.
        return await asyncio.shield(task)

    async def documents(self, texts: Sequence[str]) -> list[Document]:
        """Embed stored texts; they pass the cache by."""
        return await self.inner.documents(texts)

    async def windows(self, texts: Sequence[str]) -> list[int]:
        """Into how many windows each text is cut."""
        return await self.inner.windows(texts)

    async def close(self) -> None:
        """Forget everything and close the embedder."""
        self._made.clear()
        await self.inner.close()

    def _finished(self, text: str, task: asyncio.Task[Question]) -> None:
        self._running.pop(text, None)
        # Asking for the exception also marks it as seen when every caller has given up.
        if task.cancelled() or task.exception() is not None:
            return
        made = task.result()
        for array in made:
            if array is not None:
                array.flags.writeable = False
        self._made[text] = made
        while len(self._made) > self._size:
            self._made.popitem(last=False)

"""A cache of query vectors in front of any embedder."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from app.embeddings.port import Embedder, Vectors


class CachedEmbedder:
    """Remembers the vectors of the `size` most recently used queries; identical queries at once cost one embedding.

    The arrays are shared between callers and therefore read-only. Failures are not remembered.
    """

    def __init__(self, inner: Embedder, size: int = 4096) -> None:
        self.inner = inner
        self.model = inner.model
        self.cutting = inner.cutting
        self._size = size
        self._vectors: OrderedDict[str, npt.NDArray[np.float32]] = OrderedDict()
        self._running: dict[str, asyncio.Task[npt.NDArray[np.float32]]] = {}

    async def dimension(self) -> int:
        """Length of a vector."""
        return await self.inner.dimension()

    def known(self, text: str) -> npt.NDArray[np.float32] | None:
        """The query's vector if it needs no embedding, read-only."""
        if (found := self._vectors.get(text)) is not None:
            self._vectors.move_to_end(text)
        return found

    async def query(self, text: str) -> npt.NDArray[np.float32]:
        """The query's vector, shape (dimension,), read-only."""
        if (known := self.known(text)) is not None:
            return known
        if (task := self._running.get(text)) is None:
            task = self._running[text] = asyncio.create_task(self.inner.query(text))
            task.add_done_callback(lambda done: self._finished(text, done))
        # A caller that gives up must not take the vector away from those who wait for the same text.
        return await asyncio.shield(task)

    async def documents(self, texts: Sequence[str]) -> list[Vectors]:
        """Embed stored texts, each as its windows; they pass the cache by."""
        return await self.inner.documents(texts)

    async def windows(self, texts: Sequence[str]) -> list[int]:
        """Into how many windows each text is cut."""
        return await self.inner.windows(texts)

    async def close(self) -> None:
        """Forget everything and close the embedder."""
        self._vectors.clear()
        await self.inner.close()

    def _finished(self, text: str, task: asyncio.Task[npt.NDArray[np.float32]]) -> None:
        self._running.pop(text, None)
        # Asking for the exception also marks it as seen when every caller has given up.
        if task.cancelled() or task.exception() is not None:
            return
        vector = task.result()
        vector.flags.writeable = False
        self._vectors[text] = vector
        while len(self._vectors) > self._size:
            self._vectors.popitem(last=False)

"""A cache of what an embedder makes of queries, in front of any."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from openmemory.embeddings.port import Document, Embedder, Question


class CachedEmbedder:
    """Remembers what was made of the `size` most recently used queries; identical queries at once cost one embedding,
    which is given up when all who wait for it have.

    The arrays are shared between callers and therefore read-only. Failures are not remembered.
    """

    def __init__(self, inner: Embedder, size: int = 4096) -> None:
        self.inner = inner
        self.model = inner.model
        self.cutting = inner.cutting
        self.tokenwise = inner.tokenwise
        self._size = size
        self._made: OrderedDict[str, Question] = OrderedDict()
        self._running: dict[str, _Run] = {}

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
        if (run := self._running.get(text)) is None:
            run = self._running[text] = _Run(asyncio.create_task(self.inner.query(text)))
            run.task.add_done_callback(lambda _: self._finished(text, run))
        run.waiting += 1
        try:
            # A caller that gives up must not take the vectors away from those who wait for the same text.
            return await asyncio.shield(run.task)
        finally:
            run.waiting -= 1
            if not run.waiting and not run.task.done():
                # Whoever asks next starts anew.
                self._running.pop(text)
                run.task.cancel()

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

    def _finished(self, text: str, run: _Run) -> None:
        if self._running.get(text) is run:
            self._running.pop(text)
        # Asking for the exception also marks it as seen when every caller has given up.
        if run.task.cancelled() or run.task.exception() is not None:
            return
        made = run.task.result()
        for array in made:
            if array is not None:
                array.flags.writeable = False
        self._made[text] = made
        while len(self._made) > self._size:
            self._made.popitem(last=False)


@dataclass(slots=True)
class _Run:
    """An embedding that is being made, and how many callers wait for it."""

    task: asyncio.Task[Question]
    waiting: int = 0

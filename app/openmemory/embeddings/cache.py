"""A cache of embeddings for any embedder."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from openmemory.embeddings.port import Embedder, EmbedderUnavailable, QueryEmbedding, TextEmbedding

EARLY = 64
"""The maximum number of texts whose embeddings wait for `documents`."""

AT_ONCE = 2
"""The maximum number of texts that are embedded early at the same time. More would delay `documents`."""


class CachedEmbedder:
    """Caches the embeddings of the `size` most recently used queries, and those of texts that are just being stored.

    Identical concurrent queries cost one embedding, which is cancelled once every waiting caller has given up. Callers
    share the arrays, so they are read-only. Failures are not cached.
    """

    def __init__(self, inner: Embedder, size: int = 4096) -> None:
        self.inner = inner
        self.model = inner.model
        self.chunking = inner.chunking
        self.tokenwise = inner.tokenwise
        self._size = size
        self._cached: OrderedDict[str, QueryEmbedding] = OrderedDict()
        self._running: dict[str, _Run] = {}
        self._early: OrderedDict[str, asyncio.Task[TextEmbedding]] = OrderedDict()

    async def dimension(self) -> int:
        """The length of a vector."""
        return await self.inner.dimension()

    def lookup(self, text: str) -> QueryEmbedding | None:
        """Returns the cached embedding of the query, read-only, or None."""
        if (embedding := self._cached.get(text)) is not None:
            self._cached.move_to_end(text)
        return embedding

    async def query(self, text: str) -> QueryEmbedding:
        """Returns the embedding of the query, read-only."""
        if (embedding := self.lookup(text)) is not None:
            return embedding
        if (run := self._running.get(text)) is None:
            run = self._running[text] = _Run(asyncio.create_task(self.inner.query(text)))
            run.task.add_done_callback(lambda _: self._on_finished(text, run))
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

    @property
    def busy(self) -> bool:
        """True while `document` embeds no further text."""
        return sum(not run.done() for run in self._early.values()) >= AT_ONCE

    async def document(self, text: str) -> TextEmbedding:
        """Returns the embedding of a text that is about to be stored. The next call of `documents` takes it over.

        Raises:
            EmbedderUnavailable: too many such texts are being embedded, or see `Embedder`.
        """
        if (run := self._early.get(text)) is None:
            if self.busy:
                raise EmbedderUnavailable("the model is busy with other texts")
            run = self._early[text] = asyncio.create_task(self._document(text), name="document")
            run.add_done_callback(lambda _: self._read(text, run))
            while len(self._early) > EARLY:
                self._early.popitem(last=False)
        await asyncio.wait([run])
        if run.cancelled():
            raise EmbedderUnavailable("the model was closed")
        return run.result()

    async def documents(self, texts: Sequence[str]) -> list[TextEmbedding]:
        """Embeds stored texts, except those that `document` embeds or has embedded."""
        early = [self._early.pop(text, None) for text in texts]
        if runs := [run for run in early if run is not None]:
            await asyncio.wait(runs)
        embeddings = [None if run is None or _has_failed(run) else run.result() for run in early]
        missing = [text for text, one in zip(texts, embeddings, strict=True) if one is None]
        rest = iter(await self.inner.documents(missing) if missing else ())
        return [next(rest) if one is None else one for one in embeddings]

    async def chunks(self, texts: Sequence[str]) -> list[int]:
        """The number of chunks of each text."""
        return await self.inner.chunks(texts)

    async def close(self) -> None:
        """Clears the cache and closes the embedder."""
        for run in self._early.values():
            run.cancel()
        self._early.clear()
        self._cached.clear()
        await self.inner.close()

    async def _document(self, text: str) -> TextEmbedding:
        [embedding] = await self.inner.documents([text])
        _protect(embedding.chunks, embedding.tokens)
        return embedding

    def _read(self, text: str, run: asyncio.Task[TextEmbedding]) -> None:
        if _has_failed(run) and self._early.get(text) is run:
            self._early.pop(text)

    def _on_finished(self, text: str, run: _Run) -> None:
        if self._running.get(text) is run:
            self._running.pop(text)
        if _has_failed(run.task):
            return
        embedding = run.task.result()
        _protect(embedding.vector, embedding.tokens)
        self._cached[text] = embedding
        while len(self._cached) > self._size:
            self._cached.popitem(last=False)


def _protect(*arrays: npt.NDArray[Any] | None) -> None:
    """Makes arrays read-only."""
    for array in arrays:
        if array is not None:
            array.flags.writeable = False


def _has_failed(task: asyncio.Task[Any]) -> bool:
    """Returns True if a task that is done has no result. Its exception then counts as retrieved."""
    return task.cancelled() or task.exception() is not None


@dataclass(slots=True)
class _Run:
    """A running embedding, and the number of callers that wait for it."""

    task: asyncio.Task[QueryEmbedding]
    waiting: int = 0

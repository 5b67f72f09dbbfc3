"""A space: one model and the index of its vectors, with deadlines and circuit breakers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.chance import ChanceCosine, background, chance_cosine
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding, TextEmbedding
from openmemory.index.lease import Lease
from openmemory.index.port import NOBODY, Filter, Hit, IndexUnavailable, SparseVector, Vector, VectorIndex, Vectors
from openmemory.resilience.circuit_breaker import BreakerState, CircuitBreaker, CircuitOpen

T = TypeVar("T")

_NOBODYS = Filter(NOBODY)
_SAMPLE_TEXT = "The quick brown fox jumps over the lazy dog."


@dataclass(frozen=True, slots=True)
class Deadlines:
    """The seconds that a search waits for the embedding of its query, and for the index."""

    embedder: float = 10.0
    index: float = 2.0


class Space:
    """Embeds with one model, and stores and searches its vectors.

    After repeated failures, the model or the index is no longer called: searches fail at once, and a background probe
    detects when it answers again. Then `on_recovery` is called.
    """

    def __init__(
        self,
        embedder: CachedEmbedder,
        index: VectorIndex,
        deadlines: Deadlines | None = None,
        *,
        collection: str = "",
        dimension: int | None = None,
        on_recovery: Callable[[], None] | None = None,
        lease: Lease | None = None,
    ) -> None:
        self.embedder = embedder
        self.index = index
        self.collection = collection
        """The name of the collection. Empty until the model's dimension is known."""
        self._deadlines = deadlines or Deadlines()
        self._dimension = dimension
        self._lease = lease or Lease()
        self._closed = False
        self._background: asyncio.Task[Vectors] | None = None
        self.behind: str | None = None
        """The reason why the collection may lack data that PostgreSQL contains. None if it is known to be complete."""
        self.unconfirmed = False
        """True after a delivery since the watermark was last advanced."""
        self.missed = 0
        """The number of items that delivery could not write here, since the start of the process. The comparison finds
        them."""
        self.embedder_breaker = CircuitBreaker(
            "embedder",
            trips_on=(EmbedderUnavailable, TimeoutError),
            probe=self._probe_embedder,
            on_close=on_recovery,
        )
        self.index_breaker = CircuitBreaker(
            "index", trips_on=(IndexUnavailable, TimeoutError), probe=self._probe_index, on_close=on_recovery
        )

    @property
    def model(self) -> str:
        """The name of the model, which is part of the key of stored vectors."""
        return self.embedder.model

    @property
    def answers(self) -> bool:
        """False while the model or the index is known to be unavailable."""
        breakers = self.embedder_breaker, self.index_breaker
        return not self._lease.lost and all(breaker.state is BreakerState.CLOSED for breaker in breakers)

    @property
    def foreign(self) -> bool:
        """True while the collection is known to belong to another installation."""
        return self._lease.foreign is not None

    async def dimension(self) -> int:
        """The length of a vector here. Calls the model only if no collection defines it.

        Raises:
            EmbedderUnavailable: the model was called and does not answer.
        """
        if self._dimension is None:
            self._dimension = await self.embedder.dimension()
        return self._dimension

    async def query(self, text: str) -> QueryEmbedding:
        """The embedding of a search query.

        Raises:
            EmbedderUnavailable: the model does not answer in time, or its circuit is open.
        """
        if (embedding := self.embedder.lookup(text)) is not None:
            return embedding
        return await self._call_model(lambda: self.embedder.query(text))

    async def document(self, text: str) -> TextEmbedding:
        """The embedding of a text that is about to be stored. Its delivery uses the same one.

        Raises:
            EmbedderUnavailable: the model does not answer in time, is busy with such texts, or its circuit is open.
        """
        if self.embedder.busy:
            raise EmbedderUnavailable("the model is busy with other texts")
        return await self._call_model(lambda: self.embedder.document(text))

    async def chance(self, question: Vector) -> ChanceCosine:
        """The cosines that a question has by chance. The first call reads or embeds the background. If it gives up
        before that is done, a later call waits for the same task.

        Raises:
            EmbedderUnavailable: the model does not answer in time, or its circuit is open.
        """
        if self._closed:
            raise EmbedderUnavailable("the index was closed")
        task = self.prepare()
        await asyncio.wait([task], timeout=self._deadlines.embedder)
        if not task.done():
            raise EmbedderUnavailable(f"no answer within {self._deadlines.embedder:g} s")
        if task.cancelled():
            raise EmbedderUnavailable("the index was closed")
        return chance_cosine(question, task.result())

    def prepare(self) -> asyncio.Task[Vectors]:
        """Returns the task that reads or embeds the background of `chance`. If there is none, or the last one failed,
        this starts one."""
        task = self._background
        if task is None or task.cancelled() or (task.done() and task.exception() is not None):
            task = self._background = asyncio.create_task(background(self.embedder), name="background")
        return task

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        """The nearest points, best first.

        Raises:
            IndexUnavailable: the index does not answer in time, its circuit is open, the vector is not of its size, or
                another service has the index lease.
        """
        return await self._search_index(self.index.search(vector, where, limit))

    async def search_words(self, words: SparseVector, where: Filter, limit: int) -> list[Hit]:
        """The points that share words, best first.

        Raises:
            IndexUnavailable: see `search`.
        """
        return await self._search_index(self.index.search_words(words, where, limit))

    async def _search_index(self, search: Coroutine[Any, Any, list[Hit]]) -> list[Hit]:
        try:
            if (refusal := self._lease.refusal) is not None:
                raise IndexUnavailable(refusal)
            async with self.index_breaker.guard(), asyncio.timeout(self._deadlines.index):
                return await search
        except CircuitOpen as refused:
            raise IndexUnavailable(str(refused)) from None
        except TimeoutError:
            raise IndexUnavailable(f"no answer within {self._deadlines.index:g} s") from None
        except ValueError as error:  # the model changed its size since the collection was created
            raise IndexUnavailable(str(error)) from error
        finally:
            search.close()  # it was not awaited if the circuit is open

    async def close(self) -> None:
        """Closes the index. Searches there fail from now on. The model may serve elsewhere."""
        self._closed = True
        if self._background is not None:
            self._background.cancel()
            await asyncio.gather(self._background, return_exceptions=True)
        await self.embedder_breaker.close()
        await self.index_breaker.close()
        await self.index.close()

    async def ask_model(self) -> None:
        """Checks that the model accepts a text that every model accepts. If so, a rejected text was the problem.

        Raises:
            EmbedderUnavailable: the model is unavailable, or its vectors have another length than those of the index.
        """
        # Not through the cache, which would keep answering.
        length = len((await self.embedder.inner.query(_SAMPLE_TEXT)).vector)
        if self._dimension is not None and length != self._dimension:
            raise EmbedderUnavailable(f"it answers with {length} numbers, and the index has {self._dimension}")

    async def _call_model(self, embedding: Callable[[], Awaitable[T]]) -> T:
        try:
            async with self.embedder_breaker.guard(), asyncio.timeout(self._deadlines.embedder):
                try:
                    return await embedding()
                except EmbedderUnavailable as error:
                    # A rejected input must not trip the shared circuit breaker.
                    await self.ask_model()
                    raise _RejectedText(str(error)) from error
        except (CircuitOpen, _RejectedText) as refused:
            raise EmbedderUnavailable(str(refused)) from None
        except TimeoutError:
            raise EmbedderUnavailable(f"no answer within {self._deadlines.embedder:g} s") from None

    async def _probe_embedder(self) -> None:
        async with asyncio.timeout(self._deadlines.embedder):
            await self.ask_model()

    async def _probe_index(self) -> None:
        async with asyncio.timeout(self._deadlines.index):
            if self._dimension is None:
                await self.index.open()
            else:
                await self.index.search(np.ones(self._dimension, dtype=np.float32), _NOBODYS, 1)


class _RejectedText(Exception):
    """The model rejects this text and accepts others."""


@dataclass(slots=True)
class Spaces:
    """The current spaces: the one that searches use, the one being filled, and those kept for a rollback.

    Code that needs a space reads it here each time, since it changes when a new model takes over.
    """

    serving: Space
    building: Space | None = None
    retired: list[Space] = field(default_factory=list)
    obstacle: str | None = None
    """The reason why the configured model is not in use, if waiting alone does not help."""
    on_recovery: Callable[[], None] | None = None
    """Called after a model or an index recovers, and after another collection took over: data may be missing."""

    def recovered(self) -> None:
        """Requests a comparison of the stores."""
        if self.on_recovery is not None:
            self.on_recovery()

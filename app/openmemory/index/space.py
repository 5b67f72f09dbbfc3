"""A space: one model and the index that holds its vectors, asked with deadlines and behind circuit breakers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.port import EmbedderUnavailable, Question
from openmemory.index.lease import LOST, Lease
from openmemory.index.port import NOBODY, Filter, Hit, IndexUnavailable, Vector, VectorIndex
from openmemory.resilience.circuit_breaker import CircuitBreaker, CircuitOpen

_NOBODYS = Filter(NOBODY)
_KNOWN_GOOD = "The quick brown fox jumps over the lazy dog."


@dataclass(frozen=True, slots=True)
class Deadlines:
    """Seconds that a search waits for the embedding of its query, and for the index."""

    embedder: float = 10.0
    index: float = 2.0


class Space:
    """Where vectors of one model are made, kept and found.

    After repeated failures the model or the index is not asked any more: searches are refused at once, and a probe in
    the background finds out when it answers again. `on_recovery` is called then.
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
        """Name of the collection; empty until the model has told its dimension."""
        self._deadlines = deadlines or Deadlines()
        self._dimension = dimension
        self._lease = lease or Lease()
        self.behind: str | None = None
        """Why the collection may lack something that PostgreSQL holds; None if it is known to be whole."""
        self.unconfirmed = False
        """Something was delivered since the watermark was last advanced."""
        self.missed = 0
        """Items that delivery could not bring here, since the start of the process; the comparison finds them."""
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
        """Name of the model: part of the key of stored vectors."""
        return self.embedder.model

    async def dimension(self) -> int:
        """Length of a vector here. The model is asked only where no collection tells.

        Raises:
            EmbedderUnavailable: it had to be asked and does not answer.
        """
        if self._dimension is None:
            self._dimension = await self.embedder.dimension()
        return self._dimension

    async def query(self, text: str) -> Question:
        """What the model makes of a search query.

        Raises:
            EmbedderUnavailable: the model does not answer in time, or its circuit is open.
        """
        if (known := self.embedder.known(text)) is not None:
            return known
        try:
            async with self.embedder_breaker.guard(), asyncio.timeout(self._deadlines.embedder):
                return await self._embedded(text)
        except (CircuitOpen, _Refused) as refused:
            raise EmbedderUnavailable(str(refused)) from None
        except TimeoutError:
            raise EmbedderUnavailable(f"no answer within {self._deadlines.embedder:g} s") from None

    async def search(self, vector: Vector, where: Filter, limit: int) -> list[Hit]:
        """The nearest points, best first.

        Raises:
            IndexUnavailable: the index does not answer in time, its circuit is open, the vector is not of its size, or
                another service has the index lease.
        """
        if self._lease.lost:
            raise IndexUnavailable(LOST)
        try:
            async with self.index_breaker.guard(), asyncio.timeout(self._deadlines.index):
                return await self.index.search(vector, where, limit)
        except CircuitOpen as refused:
            raise IndexUnavailable(str(refused)) from None
        except TimeoutError:
            raise IndexUnavailable(f"no answer within {self._deadlines.index:g} s") from None
        except ValueError as error:  # the model changed its size since the collection was made
            raise IndexUnavailable(str(error)) from error

    async def close(self) -> None:
        """Close the index; what searches there fails from now on. The model may serve elsewhere."""
        await self.embedder_breaker.close()
        await self.index_breaker.close()
        await self.index.close()

    async def ask_model(self) -> None:
        """Whether the model takes a text that every model takes: if not, it is away rather than the texts odd.

        Raises:
            EmbedderUnavailable: it is away.
        """
        # Not through the cache, which would go on answering.
        await self.embedder.inner.query(_KNOWN_GOOD)

    async def _embedded(self, text: str) -> Question:
        try:
            return await self.embedder.query(text)
        except EmbedderUnavailable as error:
            # Whose text a model refuses must not take it away from everybody.
            await self.ask_model()
            raise _Refused(str(error)) from error

    async def _probe_embedder(self) -> None:
        async with asyncio.timeout(self._deadlines.embedder):
            await self.ask_model()

    async def _probe_index(self) -> None:
        async with asyncio.timeout(self._deadlines.index):
            if self._dimension is None:
                await self.index.open()
            else:
                await self.index.search(np.ones(self._dimension, dtype=np.float32), _NOBODYS, 1)


class _Refused(Exception):
    """The model refuses this text and takes others."""


@dataclass(slots=True)
class Spaces:
    """Where vectors are now: what searches use, what is filled beside it, and what is kept for a way back.

    Whoever needs a space reads it here each time: it changes when a new model takes over.
    """

    serving: Space
    building: Space | None = None
    retired: list[Space] = field(default_factory=list)
    obstacle: str | None = None
    """Why the model that is configured is not the one in use, if that is not just a matter of time."""
    on_recovery: Callable[[], None] | None = None
    """Called when a model or an index answers again, and when another collection took over: it may lack something."""

    def recovered(self) -> None:
        """Say that the stores should be compared."""
        if self.on_recovery is not None:
            self.on_recovery()

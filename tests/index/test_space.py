"""A space whose index is replaced while searches use it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
import pytest

from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import EmbedderUnavailable, TextEmbedding
from openmemory.index.lazy import LazyIndex
from openmemory.index.port import IndexUnavailable, VectorIndex
from openmemory.index.space import Space


class Slow(LocalEmbedder):
    """A model whose embedding of documents never ends."""

    async def documents(self, _: Sequence[str]) -> list[TextEmbedding]:
        await asyncio.Event().wait()
        raise AssertionError


async def nowhere() -> VectorIndex:
    raise IndexUnavailable


async def test_a_search_that_waits_for_the_background_of_a_closed_space_is_not_cancelled() -> None:
    embedder = Slow()
    space, question = Space(CachedEmbedder(embedder), LazyIndex(nowhere)), np.ones(384, dtype=np.float32)
    waiting = asyncio.create_task(space.chance(question))
    await asyncio.sleep(0)
    await space.close()
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await waiting
    with pytest.raises(EmbedderUnavailable, match="closed"):
        await space.chance(question)
    await embedder.close()

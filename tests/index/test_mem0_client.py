"""mem0's own client reads a collection of ours, by the collection's name."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from qdrant_client import QdrantClient
from qdrant_client.http.exceptions import UnexpectedResponse

from openmemory.index.port import Point, Vector
from openmemory.index.qdrant import QdrantIndex
from tests.index.conftest import DIMENSION, ServerStore


@pytest.fixture
async def store(
    qdrant_url: str, point: Callable[..., Point], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[ServerStore]:
    """Two memories of alice and one of bob on a server, in a collection that an alias names."""
    monkeypatch.setenv("MEM0_DIR", str(tmp_path))
    store = ServerStore(qdrant_url)
    index: QdrantIndex = store.index()
    await index.upsert([point(1), point(2), point(3, user_name="bob")])
    await index.activate()
    await index.close()
    yield store
    await store.remove()


def opened(collection: str, url: str) -> Any:
    """The vector store of mem0 over a collection, as its `Memory` opens it."""
    from mem0.vector_stores.qdrant import Qdrant

    return Qdrant(collection, DIMENSION, QdrantClient(url, check_compatibility=False))


async def test_mem0s_client_searches_by_the_name_of_the_collection(
    store: ServerStore, direction: Callable[..., Vector]
) -> None:
    def search() -> list[tuple[str, str]]:
        found = opened(store.name, store.url).search("", direction(2).tolist(), filters={"user_id": "alice"})
        return [(hit.payload["user_id"], hit.payload["data"]) for hit in found]

    assert await asyncio.to_thread(search) == [("alice", "text 2"), ("alice", "text 1")]


async def test_mem0s_client_cannot_use_the_alias_because_it_looks_for_a_collection(store: ServerStore) -> None:
    with pytest.raises(UnexpectedResponse, match="Alias with the same name already exists"):
        await asyncio.to_thread(opened, store.alias, store.url)

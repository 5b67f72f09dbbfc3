"""Builders of points, and the two stores that the contract of the index is held against."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import pytest
from qdrant_client import AsyncQdrantClient
from sqlalchemy import text

from openmemory.index.collections import collection_name
from openmemory.index.engine.index import EdgeIndex
from openmemory.index.engine.rest_api import QdrantRestApi
from openmemory.index.port import Accept, Connected, Payload, Point, SparseVector, Vector
from openmemory.index.qdrant import QdrantIndex
from openmemory.services import Services
from tests.clusters import furnish
from tests.faults.embedding_server import EmbeddingServer
from tests.index.serving import served

DIMENSION = 16
MOMENT = datetime(2026, 11, 3, 9, 30, tzinfo=UTC)


def unit(seed: int, dimension: int = DIMENSION) -> Vector:
    """A direction of its own for each seed."""
    vector = np.random.default_rng(seed).standard_normal(dimension).astype(np.float32)
    return vector / np.float32(np.linalg.norm(vector))


def sparse_of(weights: dict[int, float]) -> SparseVector:
    """A sparse vector of these numbers at these indices."""
    return SparseVector(np.array([*weights], dtype=np.uint32), np.array([*weights.values()], dtype=np.float32))


def build_point(seed: int, **changes: Any) -> Point:
    """A point whose id and vector follow from its seed. `vector`: another one; `vectors`: several; `words`: weights by
    the index of the word."""
    text = f"text {seed}"
    said: dict[str, Any] = {"text": text, "user_name": "alice", "created_at": MOMENT, "updated_at": MOMENT}
    said |= {name: changes.pop(name) for name in (*said, "categories") if name in changes}
    values: dict[str, Any] = {
        "id": uuid.UUID(int=seed + 1),
        "words": sparse_of(changes.pop("words", {})),
        "vectors": np.atleast_2d(changes.pop("vector", unit(seed))),
        "user": uuid.UUID(int=1),
        "app": uuid.UUID(int=2),
        "namespace": "default",
        "kind": "memory",
        "revision": 1,
        "text_hash": f"hash of {text}",
        "categories": changes.pop("filed", ()),
        "document": Payload(**said),
    }
    return Point(**(values | changes))


class Store(Protocol):
    """A place that keeps one collection and can be opened again and again, by one index at a time."""

    def index(self, on_connected: Connected | None = None, accept: Accept | None = None) -> EdgeIndex | QdrantIndex: ...


class EdgeStore:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def index(self, on_connected: Connected | None = None, accept: Accept | None = None) -> EdgeIndex:
        name = collection_name("memories", "model", DIMENSION)
        return EdgeIndex(self.folder, collection=name, dimension=DIMENSION, accept=accept, on_connected=on_connected)


class ServerStore:
    """A server at an address, over HTTP."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.alias = f"test-{uuid.uuid4().hex[:12]}"
        self.name = collection_name(self.alias, "model", DIMENSION)

    def index(self, on_connected: Connected | None = None, accept: Accept | None = None) -> QdrantIndex:
        return QdrantIndex(
            self.url,
            collection=self.name,
            alias=self.alias,
            dimension=DIMENSION,
            timeout=10,
            accept=accept,
            on_connected=on_connected,
        )

    async def remove(self) -> None:
        client = AsyncQdrantClient(self.url, check_compatibility=False)
        await client.delete_collection(self.name)
        await client.close()


@pytest.fixture(scope="session")
async def qdrant_url(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    """The server that `OPENMEMORY_TEST_QDRANT_URL` names, else our own front on a socket."""
    if url := os.environ.get("OPENMEMORY_TEST_QDRANT_URL"):
        yield url
        return
    async with served(QdrantRestApi(tmp_path_factory.mktemp("qdrant"))) as url:
        yield url


@pytest.fixture(params=["edge", "server"])
async def store(request: pytest.FixtureRequest, tmp_path: Path, qdrant_url: str) -> AsyncIterator[Store]:
    if request.param == "edge":
        yield EdgeStore(tmp_path)
        return
    server = ServerStore(qdrant_url)
    yield server
    await server.remove()


@pytest.fixture
async def index(store: Store) -> AsyncIterator[EdgeIndex | QdrantIndex]:
    opened = store.index()
    await opened.open()
    yield opened
    await opened.close()


@pytest.fixture
def point() -> Callable[..., Point]:
    return build_point


@pytest.fixture
def direction() -> Callable[..., Vector]:
    return unit


@pytest.fixture
async def deliver_all(services: Services, eventually) -> Callable[[], Awaitable[None]]:
    """Deliver every mark, also those that other tests left claimed or postponed."""

    async def delivered() -> bool:
        async with services.database.transaction() as tx:
            await tx.execute(text("UPDATE index_outbox SET due_at = now()"))
        await services.outbox_delivery.drain()
        async with services.database.statement() as tx:
            return not await tx.scalar(text("SELECT count(*) FROM index_outbox"))

    async def wait() -> None:
        await eventually(delivered)

    return wait


@pytest.fixture
def resident() -> Callable[[Path], int]:
    """Bytes that this process has resident of files whose path begins with a path."""

    def of(path: Path) -> int:
        found, inside = 0, False
        for line in Path("/proc/self/smaps").read_text(encoding="utf-8").splitlines():
            first, *rest = line.split()
            if "-" in first and not first.endswith(":"):
                inside = str(path) in line
            elif inside and first == "Rss:":
                found += int(rest[0]) * 1024
        return found

    return of


@pytest.fixture
def server() -> Iterator[EmbeddingServer]:
    """A provider whose model makes 24 dimensions."""
    serving = EmbeddingServer(24)
    yield serving
    serving.close()


@pytest.fixture
def folder(short_folder: Path) -> Path:
    return furnish(short_folder / f"models-{uuid.uuid4().hex[:8]}")

"""Services over one data folder with one model or another, in which nothing goes on but on request."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

from openmemory.config.settings import Settings
from openmemory.health.service import Collection
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.index.space import Space
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services, open_services
from tests.faults.embedding_server import EmbeddingServer

LOCAL = "openmemory__all-minilm-l6-v2-int8__384__words-scope"


@asynccontextmanager
async def running(
    folder: Path,
    server: EmbeddingServer | None = None,
    *,
    keep: int = 3600,
    collection: str = "openmemory",
    qdrant: str = "",
) -> AsyncIterator[Services]:
    """The services with the packaged model, or with the model of a server; nothing runs but on request.

    `collection` is the setting of that name; `qdrant` the address of a server in place of the built-in index.
    """
    embedder = {} if server is None else {
        "provider": "openai", "model": "other", "base_url": f"http://127.0.0.1:{server.port}/v1", "api_key": "k",
        "timeout": 5,
    }  # fmt: skip
    settings = Settings.model_validate(
        {
            "data_dir": str(folder), "port": 0, "embedder": embedder, "sync": {"keep": keep},
            "qdrant": {"collection": collection, "url": qdrant},
        }
    )  # fmt: skip
    async with open_services(settings) as services:
        await services.outbox_delivery.stop()
        yield services


async def ann(services: Services) -> Caller:
    return await services.directory.caller("ann", None, owner=True)


async def filled(folder: Path, count: int = 12) -> list[UUID]:
    """Memories with vectors of the packaged model."""
    async with running(folder) as services:
        news = [MemoryCreate(text=f"fact number {n} about tea") for n in range(count)]
        added = await services.memories.add_many(await ann(services), news)
        await services.rebuild.step()
        await services.reconciler.sync(trigger="test")
        return [one.id for one in added]


async def collections(services: Services) -> dict[str, str]:
    found: list[Collection] = (await services.health.diagnose()).collections
    return {one.collection: one.state for one in found}


async def begun(services: Services) -> Space:
    """What the first half of a step does: the collection of the configured model is known, and empty."""
    await services.rebuild._watcher.want()
    await services.rebuild._watcher.follow()
    building = services.spaces.building
    assert building is not None
    return building


async def put(services: Services, space: Space, ids: list[UUID]) -> None:
    """Write memories to a space, unverified."""
    repair = services.reconciler._repair
    async for loaded in repair.prepare(space, ItemKind.MEMORY, ids):
        await repair.put(space, loaded)

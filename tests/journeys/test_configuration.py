"""An embedder that is saved at one process is used by all of them, without a restart."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.clusters import furnish
from tests.faults.embedding_server import EmbeddingServer
from tests.journeys.service import starting

pytestmark = [pytest.mark.journey, pytest.mark.slow, pytest.mark.timeout(240)]

WORKERS = 2


async def test_every_process_follows_what_was_saved(folder: Path, eventually: Callable[..., Awaitable[None]]) -> None:
    server = EmbeddingServer(24, "one")
    address = f"http://127.0.0.1:{server.port}/v1"
    try:
        with starting(furnish(folder), "--workers", str(WORKERS)) as start:
            url = (await asyncio.to_thread(start, OPENMEMORY_EGRESS_ALLOW="127.0.0.1")).ready()

            async def models() -> set[str]:
                """What many connections at once are told, which the kernel spreads over the processes."""

                async def ask() -> str:
                    async with httpx.AsyncClient(timeout=20) as http:
                        checks = (await http.get(f"{url}/health/ready")).json()["checks"]
                        return str(checks["embedder"]["detail"]["model"])

                return set(await asyncio.gather(*(ask() for _ in range(24))))

            async with httpx.AsyncClient(base_url=url, timeout=30) as http:
                for number in range(12):
                    body = {"user_id": "ann", "text": f"fact number {number} about tea", "infer": False}
                    assert (await http.post("/api/v1/memories", json=body)).status_code == 200
                assert await models() == {"all-MiniLM-L6-v2-int8"}
                section = {"provider": "openai", "config": {"model": "one", "api_key": "k", "openai_base_url": address}}
                saved = await http.put("/api/v1/config/mem0/embedder", json=section)
                assert saved.status_code == 200, saved.text

                async def followed() -> bool:
                    await asyncio.sleep(0.5)  # a look is 25 requests, and the row is read every 15 seconds
                    assert (
                        await http.get("/api/v1/memories/search", params={"user_id": "ann", "query": "tea"})
                    ).json()["results"]
                    return await models() == {"openai/one"}

                await eventually(followed, within=90)
                for number in range(8):
                    params = {"user_id": "ann", "query": f"tea number {number}"}
                    found = (await http.get("/api/v1/memories/search", params=params)).json()
                    assert (found["search_method"], found["note"]) == ("hybrid", None)
    finally:
        server.close()

"""Independent services over one PostgreSQL and one Qdrant: work is shared out, never doubled."""

from __future__ import annotations

import asyncio
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy.engine import make_url

from openmemory.config.settings import Settings
from openmemory.index.sync.reconcile import LOCK
from openmemory.stores import open_stores
from tests.clusters import furnish
from tests.journeys.service import START, Service, until
from tests.warm import clean_environment

pytestmark = [pytest.mark.journey, pytest.mark.timeout(240)]

Eventually = Callable[..., Awaitable[None]]

FRONT = """
import sys
from pathlib import Path
import uvicorn
from openmemory.index.engine.rest_api import QdrantRestApi
uvicorn.run(QdrantRestApi(Path(sys.argv[1])), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")
"""


@dataclass(frozen=True)
class Replicas:
    """Two services, the process of the Qdrant that they share, and their PostgreSQL."""

    clients: tuple[httpx.AsyncClient, httpx.AsyncClient]
    qdrant: httpx.AsyncClient
    process: subprocess.Popen[bytes]
    database: str

    async def count(self, statement: str) -> int:
        """What one statement counts."""
        url = make_url(self.database)
        connecting = psycopg.AsyncConnection.connect(
            host=str(url.query["host"]), user=url.username, dbname=url.database
        )
        async with await connecting as connection:
            row = await (await connection.execute(statement.encode())).fetchone()
            assert row
            return int(row[0])

    async def points(self) -> int:
        """How many memories the collection has."""
        [alias] = (await self.qdrant.get("/aliases")).json()["result"]["aliases"]
        ours = {"exact": True, "filter": {"must_not": {"key": "owner", "match": {"any": ["watermark", "owner"]}}}}
        counted = await self.qdrant.post(f"/collections/{alias['collection_name']}/points/count", json=ours)
        return int(counted.json()["result"]["count"])


@contextmanager
def qdrant(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A Qdrant in a process of its own."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-c", FRONT, str(folder), str(port)]
    with subprocess.Popen(command, env=clean_environment()) as process:
        try:
            url = f"http://127.0.0.1:{port}"
            until(lambda: answers(url), START)
            yield process, url
        finally:
            process.kill()


def answers(url: str) -> bool:
    try:
        return httpx.get(url).is_success
    except httpx.TransportError:
        return False


@pytest.fixture
async def replicas(short_folder: Path) -> AsyncIterator[Replicas]:
    folder = short_folder / "replicas"
    services: list[Service] = []
    async with AsyncExitStack() as stack:
        _, stores = await stack.enter_async_context(
            open_stores(Settings(data_dir=str(furnish(folder / "postgres"))), workers=3)
        )
        process, url = stack.enter_context(qdrant(folder / "qdrant"))
        for name in ("one", "two"):
            shared = {"OPENMEMORY_DATABASE_URL": stores.database, "OPENMEMORY_QDRANT_URL": url}
            place = ("--data-dir", str(folder / name), "--port", "0")
            services.append(Service(*place, OPENMEMORY_QDRANT_TIMEOUT="30", **shared))
            stack.callback(services[-1].close)
        addresses = [await asyncio.to_thread(service.ready) for service in services]
        clients = [
            await stack.enter_async_context(httpx.AsyncClient(base_url=address, timeout=60)) for address in addresses
        ]
        client = await stack.enter_async_context(httpx.AsyncClient(base_url=url, timeout=60))
        yield Replicas((clients[0], clients[1]), client, process, stores.database)


async def test_memories_of_both_replicas_are_delivered_once_and_one_sync_runs_at_a_time(
    replicas: Replicas, new_user: str, eventually: Eventually
) -> None:
    async def add(number: int) -> None:
        memory = {"user_id": new_user, "text": f"Fact number {number}", "infer": False}
        answer = await replicas.clients[number % 2].post("/api/v1/memories", json=memory)
        assert answer.is_success, answer.text

    await asyncio.gather(*(add(number) for number in range(120)))

    async def delivered() -> bool:
        return not await replicas.count("SELECT count(*) FROM index_outbox")

    await eventually(delivered, within=60)
    assert await replicas.points() == 120
    for client in replicas.clients:
        found = await client.post("/api/v1/memories/search", json={"user_id": new_user, "query": "fact number 77"})
        assert found.json()["search_method"] == "hybrid", found.text
        assert found.json()["results"][0]["memory"] == "Fact number 77"
    statistics = (await replicas.clients[1].post("/sync")).raise_for_status().json()["statistics"]
    assert statistics | {"seconds": 0} == {
        "total_memories": 120, "memories_synced": 0, "deleted": 0, "embedded": 0, "unchanged": 120, "errors": 0,
        "seconds": 0,
    }  # fmt: skip

    # A sync that waits for a frozen index holds the lock for as long as this test needs.
    replicas.process.send_signal(signal.SIGSTOP)
    first = asyncio.create_task(replicas.clients[0].post("/sync"))
    holding = f"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = {LOCK} AND granted"

    running = "SELECT count(*) FROM sync_runs WHERE finished_at IS NULL"

    async def begun() -> bool:  # its run is recorded a moment after it has the lock
        return bool(await replicas.count(holding) and await replicas.count(running))

    await eventually(begun)
    second = await replicas.clients[1].post("/sync")
    assert (second.status_code, second.json()["error"]) == (409, "sync_running")
    assert await replicas.count(running) == 1
    replicas.process.send_signal(signal.SIGCONT)
    assert (await first).status_code == 200
    assert (await replicas.clients[1].post("/sync")).status_code == 200

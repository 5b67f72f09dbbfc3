"""kill -9 of the service and of its PostgreSQL, again and again, in the middle of a write load."""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from socket import socket

import httpx
import psutil
import pytest

from tests import warm

KILLS = int(os.environ.get("OPENMEMORY_TEST_KILLS", "10"))
WRITERS = 8
DEADLINE = 120.0
"""Seconds that one recovery may take."""


class Service:
    """`openmemory serve` on a fixed port, to be killed and started again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with closing(socket()) as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.process: warm.Command | subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder.parent / "serve.log").open("ab") as log:
            self.process = warm.start(
                ["serve", "--data-dir", str(self.folder), "--port", str(self.port)],
                environment=os.environ | {"OPENMEMORY_LOG_LEVEL": "warning"},
                stdout=log,
                stderr=log,
            )

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def kill_postgres(self) -> None:
        """Kill the postmaster, if it is up just now."""
        with suppress(OSError, ValueError, psutil.Error):
            pid = int((self.folder / "postgres" / "postmaster.pid").read_text().splitlines()[0])
            if "postgres" in psutil.Process(pid).name():
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            self.process.wait(timeout=20)


@pytest.fixture
def service(short_folder: Path) -> Iterator[Service]:
    service = Service(short_folder / "killed")
    service.start()
    yield service
    service.stop()


async def write(client: httpx.AsyncClient, name: int, acknowledged: dict[str, list[str]], done: asyncio.Event) -> None:
    """Add texts one after the other, each until it is acknowledged, as a careful client would."""
    number = 0
    while not done.is_set():
        text = f"Writer {name} keeps note number {number} about topic {number * 7919 % 1000}."
        body = {"user_id": "load", "text": text, "infer": False}
        while not done.is_set():
            with suppress(httpx.HTTPError):
                answer = await client.post("/api/v1/memories", json=body, timeout=10)
                if answer.status_code == 200:
                    acknowledged.setdefault(text, []).append(answer.json()["id"])
                    break
                assert answer.status_code == 503, answer.text
            await asyncio.sleep(0.02)
        number += 1


async def until(condition, within: float = DEADLINE) -> None:
    deadline = time.monotonic() + within
    while not await condition():
        assert time.monotonic() < deadline, "the service did not recover in time"
        await asyncio.sleep(0.02)


@pytest.mark.slow
@pytest.mark.journey
@pytest.mark.timeout(1200)
async def test_no_acknowledged_write_is_lost_or_doubled_however_often_we_are_killed(service: Service):
    acknowledged: dict[str, list[str]] = {}
    done = asyncio.Event()
    chance = random.Random(7)
    async with httpx.AsyncClient(base_url=service.url) as client:
        writers = [asyncio.create_task(write(client, n, acknowledged, done)) for n in range(WRITERS)]
        killed: Counter[str] = Counter()
        for _ in range(KILLS):
            before = len(acknowledged)
            enough = before + chance.randint(1, 40)

            async def written(enough: int = enough) -> bool:
                assert not any(writer.done() for writer in writers), "a writer met an answer that it cannot explain"
                return len(acknowledged) >= enough

            await until(written)
            if chance.random() < 0.5:
                service.kill()
                service.start()
                killed["service"] += 1
            else:
                service.kill_postgres()
                killed["postgres"] += 1
        after = len(acknowledged) + 20

        async def still_writing() -> bool:
            return len(acknowledged) >= after

        await until(still_writing)
        done.set()
        await asyncio.gather(*writers)
        service.kill()
        service.start()

        async def ready() -> bool:
            with suppress(httpx.HTTPError):
                return (await client.get("/health/ready")).status_code == 200
            return False

        await until(ready)
        stored = await everything(client)
        lost = [text for text, ids in acknowledged.items() if not set(ids) & {m["id"] for m in stored.get(text, [])}]
        doubled = [text for text, memories in stored.items() if len(memories) > 1]
        print(
            json.dumps(
                {"killed": killed, "acknowledged": len(acknowledged), "lost": len(lost), "doubled": len(doubled)}
            )
        )
        assert lost == []
        assert doubled == []

        async def in_step() -> bool:
            doctor = (await client.get("/api/v1/doctor", timeout=30)).json()
            return doctor["drift"] == 0 and doctor["vectors_waiting"] == 0

        await until(in_step, within=180)
        texts = iter(acknowledged)

        async def searcher() -> None:
            for text in texts:
                answer = await client.post(
                    "/api/v1/memories/search", json={"user_id": "load", "query": text}, timeout=30
                )
                best = answer.json()["results"][0]
                assert (best["memory"], best["parts"]["cosine"]) == (text, pytest.approx(1, abs=5e-3))

        await asyncio.gather(*(searcher() for _ in range(WRITERS)))


async def everything(client: httpx.AsyncClient) -> dict[str, list[dict]]:
    """All stored memories by text."""
    found: dict[str, list[dict]] = {}
    page = 1
    while True:
        answer = (
            await client.get("/api/v1/memories", params={"user_id": "load", "page": page, "size": 100}, timeout=30)
        ).json()
        for item in answer["items"]:
            found.setdefault(item["content"], []).append(item)
        if page >= answer["pages"]:
            return found
        page += 1

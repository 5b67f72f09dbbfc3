"""How long a lost index takes to come back while memories are written.

    python -m benchmarks.rebuild [--size 10000] [--rates 0 10 40 80] [--within 180]

A service with that many memories uses a Qdrant server, whose collection is removed. Then memories are added at each
rate until the index is complete again, or the time is over. The vectors are stored, so only what is added is embedded.
A model that is slower than the writes leaves entries in the outbox: the rebuild is then not complete before they end,
and its column tells how many entries wait. The last columns tell how many there are when the writes end, how long they
take, and how many items differ then. What takes longer than `--within` is told as that, so a row takes at most three
times as long, and two minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import time
from typing import Any

import httpx

from benchmarks.front import running_front
from benchmarks.seed import USER, grow, texts
from benchmarks.service import idle, running_service, temporary_folder

TOGETHER = 32
"""The number of adds that may be under way."""

BATCH = 5
"""The number of memories in one request, so that a busy machine reaches the rates."""

LASTING = 30.0
"""The seconds for which memories are written at least."""

COLUMNS = (
    "wanted", "reached", "refused", "complete after", "dry run", "sync", "waiting at the end", "delivered after",
    "differ",
)  # fmt: skip

_COLLECTION = re.compile(r"openmemory.*__words-scope")


class Writer:
    """Adds memories at a rate until it is stopped."""

    def __init__(self, http: httpx.AsyncClient, rate: int) -> None:
        self.added = 0
        self.failed = 0
        self._http = http
        self._rate = rate
        self._slots = asyncio.Semaphore(TOGETHER)
        self._running: set[asyncio.Task[None]] = set()
        self._texts = texts(1_000 + rate + int(time.time()))

    async def run(self) -> None:
        """Add until cancelled."""
        started = time.monotonic()
        for number in itertools.count():
            await asyncio.sleep(max(0.0, started + number * BATCH / self._rate - time.monotonic()))
            await self._slots.acquire()
            task = asyncio.create_task(self._add(list(itertools.islice(self._texts, BATCH))))
            self._running.add(task)
            task.add_done_callback(self._running.discard)

    async def finish(self) -> None:
        """Wait for the adds that are under way."""
        await asyncio.gather(*self._running)

    async def _add(self, texts: list[str]) -> None:
        try:
            body = {"user_id": USER, "memories": [{"text": text} for text in texts]}
            answer = await self._http.post("/api/v1/memories/batch", json=body)
            if answer.is_success:
                self.added += len(texts)
            else:
                self.failed += len(texts)
        finally:
            self._slots.release()


async def behind(http: httpx.AsyncClient) -> bool:
    """Return True while the service says that its index lacks something."""
    found = re.search(r"^openmemory_index_behind (\S+)", (await http.get("/metrics")).text, re.MULTILINE)
    return found is None or float(found[1]) > 0


async def until(http: httpx.AsyncClient, wanted: bool, within: float) -> bool:
    """Wait until the service says so; return False if it does not in time."""
    deadline = time.monotonic() + within
    while await behind(http) is not wanted:
        if time.monotonic() > deadline:
            return False
        await asyncio.sleep(0.2)
    return True


async def waiting(http: httpx.AsyncClient) -> int:
    """The entries of the outbox."""
    return int((await http.get("/api/v1/doctor")).json()["vectors_waiting"])


async def emptied(http: httpx.AsyncClient, within: float) -> str:
    """The seconds until the outbox is empty, or the number of entries that it has after the time."""
    started = time.monotonic()
    left = await waiting(http)
    while left and time.monotonic() < started + within:
        await asyncio.sleep(0.3)
        left = await waiting(http)
    return f"not in {within:.0f} s: {left} wait" if left else f"{time.monotonic() - started:.1f} s"


async def answered(http: httpx.AsyncClient, dry_run: bool, within: float) -> str:
    """The status and the seconds of a sync on request."""
    started = time.monotonic()
    try:
        answer = await http.post("/api/v1/sync", params={"dry_run": dry_run}, timeout=within)
    except httpx.TimeoutException:
        return f"none in {within:.0f} s"
    return f"{answer.status_code} in {time.monotonic() - started:.1f} s"


async def lose(qdrant: str) -> None:
    """Remove every collection of the service."""
    async with httpx.AsyncClient(base_url=qdrant, timeout=30) as client:
        for one in (await client.get("/collections")).json()["result"]["collections"]:
            if _COLLECTION.fullmatch(one["name"]):
                await client.delete(f"/collections/{one['name']}")


async def measure(url: str, qdrant: str, rate: int, within: float) -> None:
    """Print a row of the table."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        writer = Writer(http, rate)
        writing = asyncio.create_task(writer.run()) if rate else None
        started = time.monotonic()
        await lose(qdrant)
        noticed = await until(http, True, 30)
        dry = await answered(http, True, 60)
        whole = noticed and await until(http, False, within)
        seconds = time.monotonic() - started
        took = f"{seconds:.1f} s" if whole else f"not in {within:.0f} s: {await waiting(http)} wait"
        real = await answered(http, False, 60)
        if writing is not None:
            await asyncio.sleep(LASTING - (time.monotonic() - started))
            writing.cancel()
            await asyncio.wait([writing])
            await writer.finish()
        lasted = time.monotonic() - started
        left_over = await waiting(http)
        delivered = await emptied(http, within)
        left = await http.post("/api/v1/sync", params={"dry_run": True}, timeout=300)
        reached = f"{writer.added / lasted:.0f}/s" if rate else "-"
        row = f"{rate}/s", reached, writer.failed, took, dry, real, left_over, delivered, _differing(left)
        print(f"| {' | '.join(map(str, row))} |", flush=True)


def _differing(compared: httpx.Response) -> str:
    if not compared.is_success:
        return f"not told: {compared.status_code}"
    counted: dict[str, Any] = compared.json()["statistics"]
    return str(counted["memories_synced"] + counted["deleted"])


async def main(size: int, rates: list[int], within: float) -> None:
    """Fill a folder, and lose its index once for each rate."""
    with temporary_folder("rebuild") as parent:
        folder = parent / "data"
        await grow(folder, size)
        with running_front(parent / "qdrant") as qdrant:
            service = running_service(folder, OPENMEMORY_QDRANT_URL=qdrant)
            url = await asyncio.to_thread(service.__enter__)
            try:
                print(f"| {' | '.join(COLUMNS)} |\n|{'---|' * len(COLUMNS)}", flush=True)
                async with httpx.AsyncClient(base_url=url, timeout=60) as http:
                    await until(http, False, within)
                for rate in rates:
                    await idle(url)
                    await measure(url, qdrant, rate, within)
            finally:
                await asyncio.to_thread(service.__exit__, None, None, None)


def arguments() -> argparse.Namespace:
    """What to measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=10_000, help="memories of one user; others have as many together")
    parser.add_argument("--rates", type=int, nargs="+", default=[0, 10, 40, 80], help="adds a second")
    parser.add_argument("--within", type=float, default=180.0, help="seconds that a rebuild may take")
    return parser.parse_args()


if __name__ == "__main__":
    given = arguments()
    asyncio.run(main(given.size, given.rates, given.within))

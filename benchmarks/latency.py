"""Latency and throughput of adding and searching, as clients see them.

    python -m benchmarks.latency [--sizes 1000,10000,100000] [--requests 300]

One user with that many memories among twenty (the other nineteen hold as many together), a real service process, and a
lean client in this one. The bulk is stored with random vectors, since embedding it would take longer than measuring;
what is added and searched while measuring is embedded by the real model. Ratios are of one and the same run, and rates
are also given as they would be on a machine of the speed of `benchmarks.yardstick`.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from mcp.client import Client

from benchmarks.load import Figures, Rest, Sse, StreamableHttp, measure
from benchmarks.parts import parts
from benchmarks.seed import USER, questions, seed, texts
from benchmarks.service import idle, running_service, temporary_folder
from benchmarks.yardstick import REFERENCE, Yardstick
from openmemory.embeddings.local import LocalEmbedder

DOORS = {
    "REST": lambda url: Rest(url, USER),
    "streamable HTTP": lambda url: StreamableHttp(url, f"/mcp/bench/http/{USER}"),
    "SSE": lambda url: Sse(url, f"/mcp/bench/sse/{USER}"),
}
CLIENTS = (1, 8, 16)


async def search(client, text: str) -> None:
    await client.search(text)


async def add(client, text: str) -> None:
    await client.add(text)


async def doors(
    url: str, requests: int, inputs: Iterator[str], news: Iterator[str]
) -> dict[tuple[str, str, int], Figures]:
    """Every door, doing both, with every number of clients."""
    found = {}
    for clients in CLIENTS:
        for door, make in DOORS.items():
            for what, work, source in (("search", search, inputs), ("add", add, news)):
                figures = await measure([make(url) for _ in range(clients)], work, source, requests)
                found[what, door, clients] = figures
                print(f"  {what:7}{door:16}{clients:3} clients  {figures}", flush=True)
                await idle(url)
    return found


async def throughput(
    url: str, folder: Path, door: str, requests: int, inputs: Iterator[str], yardstick: Yardstick, runs: int = 5
) -> None:
    """Print how many searches 8 clients make in a second, as they are and by the yardstick, and the CPU of a search in
    the service and in PostgreSQL. All figures are medians of several runs."""
    rates, normal, spent = [], [], []
    for _ in range(runs):
        before, used = yardstick.measure(inputs), cpu(folder)
        rate = (await measure([DOORS[door](url) for _ in range(8)], search, inputs, requests)).rate
        spent.append([now - then for now, then in zip(cpu(folder), used, strict=True)])
        rates.append(rate)
        normal.append(rate * (before + yardstick.measure(inputs)) / 2 / REFERENCE)
    service, postgres = (statistics.median(each) * 1e3 / requests for each in zip(*spent, strict=True))
    print(
        f"  search {door:16}  8 clients  {runs} runs: {min(rates):.0f} to {max(rates):.0f}/s, "
        f"median {statistics.median(rates):.0f}/s; "
        f"{statistics.median(normal):.0f}/s where a float embedding takes {REFERENCE} ms; CPU of a search: service "
        f"{service:.1f} ms, PostgreSQL {postgres:.1f} ms",
        flush=True,
    )


async def ratio(url: str, bare: str, inputs: Iterator[str], count: int = 300) -> None:
    """A search against its parts that cannot be spared: a no-op tool call of a bare server, and one query embedding.

    The three take turns, so that each meets the machine, and its caches, as the others left them.
    """
    service, nothing = DOORS["streamable HTTP"](url), StreamableHttp(bare, "/mcp")
    embedder = LocalEmbedder()
    await embedder.warm()
    milliseconds: dict[str, list[float]] = {"search": [], "no-op": [], "embedding": []}
    for client in (service, nothing):
        await client.open()
    for _ in range(count):
        turns = {
            "search": service.search(next(inputs)),
            "no-op": nothing.call("noop", {}),
            "embedding": embedder.query(next(inputs)),
        }
        for name, turn in turns.items():
            started = time.perf_counter()
            await turn
            milliseconds[name].append((time.perf_counter() - started) * 1e3)
    for closing in (service, nothing, embedder):
        await closing.close()
    p50 = {name: statistics.median(found) for name, found in milliseconds.items()}
    print(
        f"  search p50 {p50['search']:.2f} ms / (no-op {p50['no-op']:.2f} + embedding {p50['embedding']:.2f}) = "
        f"{p50['search'] / (p50['no-op'] + p50['embedding']):.2f}",
        flush=True,
    )


async def official(url: str, inputs: Iterator[str], count: int) -> float:
    """p50 of a search with the SDK's own client, in milliseconds."""
    milliseconds = []
    async with Client(f"{url}/mcp/bench/http/{USER}") as client:
        for _ in range(count):
            started = time.perf_counter()
            await client.call_tool("search_memory", {"query": next(inputs)})
            milliseconds.append((time.perf_counter() - started) * 1e3)
    return statistics.median(milliseconds)


@contextlib.contextmanager
def bare_server() -> Iterator[str]:
    """A no-op MCP server in a process of its own."""
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-m", "benchmarks.noop", str(port)])
    try:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(timeout=20)


def process(folder: Path) -> psutil.Process:
    """The service of a data folder."""
    return psutil.Process(json.loads((folder / "service.json").read_text())["pid"])


def cpu(folder: Path) -> tuple[float, float]:
    """Seconds of CPU that the service and its PostgreSQL have taken so far."""
    service = process(folder)
    postgres = 0.0
    for child in service.children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            # With that of children that have ended: connections may be closed meanwhile.
            postgres += sum(child.cpu_times()[:4])
    return sum(service.cpu_times()[:2]), postgres


def memory(folder: Path) -> tuple[float, float]:
    """RSS and PSS of all processes of the service together, in MB."""
    service = process(folder)
    rss = pss = 0
    for one in [service, *service.children(recursive=True)]:
        full = one.memory_full_info()
        rss, pss = rss + full.rss, pss + full.pss
    return rss / 1e6, pss / 1e6


def seconds(command: list[str], runs: int = 5) -> float:
    """Median wall time of a command."""
    found = []
    for _ in range(runs):
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        found.append(time.perf_counter() - started)
    return statistics.median(found)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,10000,100000")
    parser.add_argument("--requests", type=int, default=300, help="requests of each measurement")
    arguments = parser.parse_args()
    sizes = [int(size) for size in arguments.sizes.split(",")]
    inputs, news, yardstick = questions(11), texts(12), Yardstick()
    with temporary_folder("latency") as temporary, bare_server() as bare:
        folder = temporary / "data"
        started = time.perf_counter()
        with running_service(folder):
            print(f"first start to ready {time.perf_counter() - started:.2f} s")
        by_size: dict[int, dict[tuple[str, str, int], Figures]] = {}
        for size in sizes:
            started = time.perf_counter()
            seed(folder, size)
            print(f"\n{size:,} memories of one user among twenty (stored in {time.perf_counter() - started:.0f} s)")
            asyncio.run(parts(folder, inputs))
            started = time.perf_counter()
            with running_service(folder) as url:
                print(f"  warm start to ready {time.perf_counter() - started:.2f} s")
                asyncio.run(idle(url))
                rss, pss = memory(folder)
                print(f"  idle: RSS {rss:.0f} MB, PSS {pss:.0f} MB of all processes")
                by_size[size] = asyncio.run(doors(url, arguments.requests, inputs, news))
                for door in ("streamable HTTP", "REST"):
                    asyncio.run(throughput(url, folder, door, 2 * arguments.requests, inputs, yardstick))
                asyncio.run(ratio(url, bare, inputs))
                print(f"  search  SDK's client     1 clients  p50 {asyncio.run(official(url, inputs, 100)):7.2f} ms")
        print()
        for size in sizes:
            adding, searching = (by_size[size][what, "streamable HTTP", 1].p50 for what in ("add", "search"))
            print(f"{size:>9,}: add p50 / search p50 {adding / searching:.2f}")
        if len(sizes) > 1:
            last, before = (by_size[size]["search", "streamable HTTP", 1].p50 for size in (sizes[-1], sizes[-2]))
            print(f"search p50 at {sizes[-1]:,} / at {sizes[-2]:,}: {last / before:.2f}")
    print(f"openmemory --help {seconds([sys.executable, '-m', 'openmemory', '--help']):.2f} s")


if __name__ == "__main__":
    main()

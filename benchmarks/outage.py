"""What searches and writes feel while Qdrant hangs."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import socket
import statistics
import subprocess
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

from benchmarks.load import Rest
from benchmarks.seed import USER, questions, texts
from benchmarks.service import idle, running_service


async def outage(folder: Path) -> None:
    """Searches and writes while Qdrant hangs, in turns with those without Qdrant, and with normal ones."""
    with contextlib.ExitStack() as stack:
        async with hanging() as silent:
            with socket.create_server(("127.0.0.1", 0)) as taken:
                nobody = f"http://127.0.0.1:{taken.getsockname()[1]}"
            urls = {}
            for name, address in (("normal", ""), ("hung", silent), ("without", nobody)):
                copy = folder.parent / name / "data"
                copy.parent.mkdir()
                await asyncio.to_thread(subprocess.run, ["cp", "-a", str(folder), str(copy)], check=True)
                environment = {"OPENMEMORY_QDRANT_URL": address} if address else {}
                urls[name] = await asyncio.to_thread(stack.enter_context, running_service(copy, **environment))
            clients = {
                name: Rest(url, USER, method="hybrid" if name == "normal" else "database_text")
                for name, url in urls.items()
            }
            for client in clients.values():
                await client.open()
            await idle(urls["normal"])
            for name in ("hung", "without"):  # until the breaker is open
                for query in itertools.islice(questions(8), 6):
                    await clients[name].search(query)
            search = await turns({name: clients[name].search for name in ("hung", "without")}, questions(9))
            write = await turns({name: clients[name].add for name in ("hung", "normal")}, texts(9))
            for client in clients.values():
                await client.close()
    told("Qdrant hangs, breaker open: search", search, "without")
    told("  write", write, "normal")


def told(what: str, p95: dict[str, float], other: str) -> None:
    """Print two percentiles and their ratio."""
    ratio = p95["hung"] / p95[other]
    print(f"{what} p95 {p95['hung']:.1f} ms, {other} {p95[other]:.1f} ms; ratio {ratio:.2f}", flush=True)


async def turns(
    work: dict[str, Callable[[str], Awaitable[object]]], inputs: Iterator[str], count: int = 400
) -> dict[str, float]:
    """The 95th percentile of each, in milliseconds; they take turns, so that all meet the same machine."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for _ in range(count):
        for name, call in work.items():
            given = next(inputs)
            started = time.perf_counter()
            await call(given)
            times[name].append(1e3 * (time.perf_counter() - started))
    return {name: statistics.quantiles(found, n=20)[-1] for name, found in times.items()}


@contextlib.asynccontextmanager
async def hanging() -> AsyncIterator[str]:
    """The address of a server that accepts and never answers."""

    async def silence(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.CancelledError):  # the server is closing
            while await reader.read(65_536):
                pass
        writer.close()

    server = await asyncio.start_server(silence, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

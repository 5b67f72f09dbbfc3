"""Compares the server time of the page with that of REST, and weighs the first load in a browser.

    python -m benchmarks page [--sizes 1000,100000] [--requests 200] [--rounds 5] [--data FOLDER]

One user with that many memories among twenty, and a real service process. The list of 50 and the search for 50 are
asked for over REST and at the page in turns, so that both meet the machine as the other left it. A search at the page
is asked for as a browser does while somebody types. Each round is a measurement of its own; the median of their ratios
is told, with the smallest and the largest.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import re
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import httpx

from benchmarks.load import Connection
from benchmarks.seed import USER, questions, seed
from benchmarks.service import idle, running_service, temporary_folder

SIZE = 50
"""Memories of a list or a search, as the page shows them."""

ENOUGH = 1.5
"""The page may take this many times as long as REST."""

LIGHT = 150
"""The maximum kilobytes of the first load, compressed."""

TYPING = "HX-Request: true\r\nHX-Target: section#found\r\nAccept: text/html\r\n"

Turn = Callable[[Connection], Awaitable[bytes]]


def listing() -> tuple[Turn, Turn]:
    """The list over REST and at the page."""
    rest, page = urlencode({"user_id": USER, "size": SIZE}), urlencode({"user": USER})
    return (
        lambda connection: connection.get(f"/api/v1/memories?{rest}"),
        lambda connection: connection.get(f"/ui/memories?{page}"),
    )


def searching(inputs: Iterator[str]) -> tuple[Turn, Turn]:
    """A search over REST and at the page. No question is asked twice, so that no vector is kept."""

    def rest(connection: Connection) -> Awaitable[bytes]:
        body = {"user_id": USER, "query": next(inputs), "limit": SIZE}
        return connection.post("/api/v1/memories/search", json.dumps(body).encode())

    def page(connection: Connection) -> Awaitable[bytes]:
        return connection.get(f"/ui/memories?{urlencode({'user': USER, 'q': next(inputs)})}", TYPING)

    return rest, page


async def compare(url: str, name: str, turns: tuple[Turn, Turn], requests: int, rounds: int) -> None:
    """Print the medians of both and the ratio of each round."""
    connection = Connection(url)
    await connection.open()
    medians: list[list[float]] = []
    for number in range(-1, rounds):
        took: list[list[float]] = [[], []]
        for _ in range(requests if number >= 0 else 20):
            for place, turn in enumerate(turns):
                started = time.perf_counter()
                await turn(connection)
                took[place].append((time.perf_counter() - started) * 1e3)
        if number >= 0:
            medians.append([statistics.median(each) for each in took])
    await connection.close()
    rest, page = (statistics.median(each) for each in zip(*medians, strict=True))
    ratios = [page / rest for rest, page in medians]
    print(
        f"  {name:8} REST p50 {rest:6.2f} ms, page {page:6.2f} ms; ratio {statistics.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}; at most {ENOUGH})",
        flush=True,
    )


async def weigh(url: str) -> None:
    """Print what a browser loads with the first page, as it comes and as a proxy would compress it."""
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        page = await http.get("/ui/memories", params={"user": USER})
        found = re.findall(r'<(?:link|script|img)\b[^>]*(?:href|src)="([^"]*static/[^"]*)"', page.text)
        files = [await http.get(page.url.join(path)) for path in dict.fromkeys(found)]
    loaded = [page.raise_for_status(), *(file.raise_for_status() for file in files)]
    for answer in loaded:
        kind = answer.headers["content-type"].partition(";")[0]
        print(f"  {kind:16} {len(answer.content) / 1e3:6.1f} kB, compressed {_compressed(answer):5.1f} kB")
    whole, small = sum(len(each.content) for each in loaded) / 1e3, sum(map(_compressed, loaded))
    print(f"  first load: {len(loaded)} requests, {whole:.1f} kB, compressed {small:.1f} kB (at most {LIGHT})")


def _compressed(answer: httpx.Response) -> float:
    return len(gzip.compress(answer.content, 6)) / 1e3


async def measure(url: str, requests: int, rounds: int) -> None:
    """Print all figures of a service."""
    await idle(url)
    await compare(url, "list", listing(), requests, rounds)
    await compare(url, "search", searching(questions(17)), requests, rounds)
    await weigh(url)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default="1000,100000")
    parser.add_argument("--requests", type=int, default=200, help="requests of each kind in a round")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--data", type=Path, help="a folder that this benchmark filled before, or is to fill and keep")
    arguments = parser.parse_args()
    with temporary_folder("page") as temporary:
        folder = arguments.data or temporary / "data"
        for size in map(int, arguments.sizes.split(",")):
            seed(folder, size)
            print(f"{size:,} memories", flush=True)
            with running_service(folder) as url:
                asyncio.run(measure(url, arguments.requests, arguments.rounds))


if __name__ == "__main__":
    main()

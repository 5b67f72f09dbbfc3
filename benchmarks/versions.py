"""Latency and CPU of searches and adds, start time and memory beside those of another version, in one run.

    git worktree add ../before v1 && make -C ../before .venv/.dev
    python -m benchmarks versions ../before [--sizes 10000,100000] [--rounds 24]

Each version fills its own folder with the same texts. Both then answer the same questions and store the same texts over
REST in turns, because the speed of a machine changes more within minutes than two versions differ. The other version
runs in the virtual environment of its checkout (`make .venv/.dev` makes it).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from benchmarks.latency import cpu, memory
from benchmarks.load import Rest
from benchmarks.seed import USER, questions, texts
from benchmarks.service import HERE, idle, python_of, running_service, temporary_folder

ASKED = 60
"""Questions of a round."""
ADDED = 10
"""Texts added in a round."""
STARTS = 5
"""Starts of each version; the first one fills caches and does not count."""
QUIET = {"OPENMEMORY_CATEGORIES_ASSIGN": "off"}
"""Turns off the work that would go on in the background after an add."""


def seeded(checkout: Path, folder: Path, size: int) -> None:
    """Bring the folder to so many memories with the code of this checkout."""
    code = f"from pathlib import Path; from benchmarks.seed import seed; seed(Path({str(folder)!r}), {size})"
    subprocess.run([python_of(checkout), "-c", code], cwd=checkout, check=True)


async def timed(call: Callable[[str], Awaitable[None]], texts: list[str]) -> list[float]:
    """The milliseconds of each of these calls."""
    took = []
    for text in texts:
        started = time.perf_counter()
        await call(text)
        took.append((time.perf_counter() - started) * 1e3)
    return took


class Calls:
    """The calls of one kind to one service: the milliseconds that each took, and the seconds of CPU of the service and
    its PostgreSQL until a second after the last one, when the vectors of what was added are stored."""

    def __init__(self, folder: Path) -> None:
        self.took: list[float] = []
        self.cpu = 0.0
        self._folder = folder

    async def add(self, url: str, calls: Awaitable[list[float]]) -> None:
        """Make the calls, and wait until nothing is left to do."""
        before = sum(cpu(self._folder))
        self.took += await calls
        await asyncio.sleep(1)
        self.cpu += sum(cpu(self._folder)) - before
        await idle(url)


async def compare(urls: list[str], folders: list[Path], rounds: int) -> tuple[list[Calls], list[Calls]]:
    """The searches and the adds, by service. The services take turns, and a different one begins each round."""
    clients = [Rest(url, USER) for url in urls]
    searches, adds = ([Calls(folder) for folder in folders] for _ in range(2))
    asked, added = questions(31), texts(37)
    for url, client in zip(urls, clients, strict=True):
        await idle(url)
        await client.open()
        await timed(client.search, list(islice(asked, ASKED)))
    for number in range(rounds):
        queries, news = list(islice(asked, ASKED)), list(islice(added, ADDED))
        order = sorted(range(len(clients)), reverse=bool(number % 2))
        for place in order:
            await searches[place].add(urls[place], timed(clients[place].search, queries))
        for place in order:
            await adds[place].add(urls[place], timed(clients[place].add, news))
    for client in clients:
        await client.close()
    return searches, adds


def starts(folder: Path, checkout: Path) -> list[float]:
    """Seconds from starting `openmemory serve` on a filled folder until it answers that it is ready."""
    took = []
    for _ in range(STARTS):
        started = time.perf_counter()
        with running_service(folder, checkout, **QUIET):
            took.append(time.perf_counter() - started)
    return took[1:]


def told(name: str, unit: str, before: list[float], now: list[float]) -> None:
    """Prints the medians of both versions, their ratio, and the 95th percentiles."""
    first, second = (statistics.quantiles(took, n=20) for took in (before, now))
    print(
        f"  {name} ({len(now):,}): p50 before {first[9]:.2f} {unit}, now {second[9]:.2f} {unit}, "
        f"ratio {second[9] / first[9]:.3f}; p95 before {first[18]:.2f}, now {second[18]:.2f}",
        flush=True,
    )


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--rounds", type=int, default=24, help=f"rounds of {ASKED} searches and {ADDED} adds")
    parser.add_argument("--data", type=Path, help="keep the folders here, filled for the next run")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        data = arguments.data or stack.enter_context(temporary_folder("versions"))
        for size in map(int, arguments.sizes.split(",")):
            print(f"{size:,} memories", flush=True)
            folders = [data / f"{name}-{size}" / "data" for name in ("before", "now")]
            checkouts = [arguments.before.resolve(), HERE]
            with ExitStack() as services:
                urls = []
                for folder, checkout in zip(folders, checkouts, strict=True):
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    seeded(checkout, folder, size)
                    urls.append(services.enter_context(running_service(folder, checkout, **QUIET)))
                idle_before, idle_now = (memory(folder)[1] for folder in folders)
                searches, adds = asyncio.run(compare(urls, folders, arguments.rounds))
                after_before, after_now = (memory(folder)[1] for folder in folders)
            for name, (before, now) in {"searches": searches, "adds": adds}.items():
                told(name, "ms", before.took, now.took)
                each = [one.cpu / len(one.took) * 1e3 for one in (before, now)]
                print(f"  {name}: CPU before {each[0]:.2f} ms, now {each[1]:.2f} ms, ratio {each[1] / each[0]:.3f}")
            told("starts", "s", *(starts(*one) for one in zip(folders, checkouts, strict=True)))
            print(
                f"  PSS of all processes: idle before {idle_before:.0f} MB, now {idle_now:.0f} MB; "
                f"after these calls before {after_before:.0f} MB, now {after_now:.0f} MB",
                flush=True,
            )


if __name__ == "__main__":
    main()

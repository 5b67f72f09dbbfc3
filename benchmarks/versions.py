"""The latency of searches beside that of another version of this service, in one run.

    git worktree add ../before v1 && make -C ../before .venv/.dev
    python -m benchmarks versions ../before [--sizes 10000,100000] [--rounds 24]

Both versions fill a folder of their own with the same texts, and answer the same questions over REST, a round the one
and a round the other: a machine's speed differs by more within minutes than two versions do. The other version runs
in the virtual environment of its checkout (`make .venv/.dev` makes it).
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import time
from contextlib import ExitStack
from itertools import islice
from pathlib import Path

from benchmarks.load import Rest
from benchmarks.seed import USER, questions
from benchmarks.service import HERE, idle, python_of, running_service, temporary_folder

ASKED = 60
"""Questions of a round."""
LATER = {"OPENMEMORY_CATEGORIES_ASSIGN": "off"}
"""Settings that an older version may not know: jobs of this one that would work in the background meanwhile."""


def seeded(checkout: Path, folder: Path, size: int) -> None:
    """Bring the folder to so many memories with the code of this checkout."""
    code = f"from pathlib import Path; from benchmarks.seed import seed; seed(Path({str(folder)!r}), {size})"
    subprocess.run([python_of(checkout), "-c", code], cwd=checkout, check=True)


async def asked(client: Rest, texts: list[str]) -> list[float]:
    """How long each of these searches took, in milliseconds."""
    took = []
    for text in texts:
        started = time.perf_counter()
        await client.search(text)
        took.append((time.perf_counter() - started) * 1e3)
    return took


async def compare(urls: list[str], rounds: int) -> list[list[float]]:
    """The milliseconds of every search of every service, which take turns; who begins changes too."""
    clients = [Rest(url, USER) for url in urls]
    took: list[list[float]] = [[] for _ in clients]
    source = questions(31)
    for url, client in zip(urls, clients, strict=True):
        await idle(url)
        await client.open()
        await asked(client, list(islice(source, ASKED)))
    for number in range(rounds):
        texts = list(islice(source, ASKED))
        for place in sorted(range(len(clients)), reverse=bool(number % 2)):
            took[place] += await asked(clients[place], texts)
    for client in clients:
        await client.close()
    return took


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path, help="a checkout of the other version")
    parser.add_argument("--sizes", default="10000,100000")
    parser.add_argument("--rounds", type=int, default=24, help=f"rounds of {ASKED} questions")
    parser.add_argument("--data", type=Path, help="keep the folders here, filled for the next run")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        data = arguments.data or stack.enter_context(temporary_folder("versions"))
        for size in map(int, arguments.sizes.split(",")):
            with ExitStack() as services:
                urls = []
                for name, checkout in (("before", arguments.before.resolve()), ("now", HERE)):
                    folder = data / f"{name}-{size}" / "data"
                    folder.parent.mkdir(parents=True, exist_ok=True)
                    seeded(checkout, folder, size)
                    settings = LATER if checkout == HERE else {}
                    urls.append(services.enter_context(running_service(folder, checkout, **settings)))
                before, now = asyncio.run(compare(urls, arguments.rounds))
            first, second = (statistics.quantiles(took, n=20) for took in (before, now))
            print(
                f"{size:>9,} memories, {len(now):,} searches: p50 before {first[9]:.2f} ms, now {second[9]:.2f} ms, "
                f"ratio {second[9] / first[9]:.3f}; p95 before {first[18]:.2f}, now {second[18]:.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

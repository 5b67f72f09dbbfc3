"""Latency of searches of memories and of passages, each alone and beside as many of the other.

    python -m benchmarks corpora [--size 100000] [--rounds 20] [--data FOLDER]

One user has that many memories, that many passages of files, or both, in three folders; nineteen others have as many
memories together wherever there are memories. Their vectors are random; the questions are embedded by the real model.
The three services answer the same questions over REST in turns.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
from sqlalchemy import text

from benchmarks.load import Rest
from benchmarks.seed import USER, keep_vectors, questions, seed, settle, texts
from benchmarks.service import idle, running_service, temporary_folder
from benchmarks.versions import QUIET, timed
from openmemory.config.settings import Settings
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.services import Services, open_services
from openmemory.sources.schemas import NewFile

ASKED = 40
"""Questions of a round."""
SECTIONS = 20
"""Passages of a file."""
_FILES = 100
Name = TypeVar("Name")
NAMES = ("memories", "passages", "both")


def files(size: int) -> Iterator[NewFile]:
    """Markdown files with so many sections in all."""
    source = texts(91, words=(40, 90))
    for number in range(size // SECTIONS):
        sections = (f"## Part {part} of {number}\n\n{next(source)}\n" for part in range(SECTIONS))
        yield NewFile(f"notes/{number}.md", "\n".join(sections))


async def add_passages(folder: Path, size: int) -> None:
    """Store this number of passages of the user."""
    async with open_services(Settings(data_dir=str(folder), port=0)) as services:
        await services.outbox_delivery.stop()
        caller = await services.directory.caller(USER, "bench", owner=True)
        source, generator = files(size), np.random.default_rng(92)
        while some := list(islice(source, _FILES)):
            await services.files.store(caller, "default", [*some])
            await _keep(services, caller, generator)
        await settle(services)


async def _keep(services: Services, caller: Caller, generator: np.random.Generator) -> None:
    new = text(
        "SELECT id, hash FROM passages AS p WHERE user_id = :user"
        " AND NOT EXISTS (SELECT FROM embeddings AS e WHERE e.kind = 'passage' AND e.id = p.id)"
    )
    async with services.database.transaction() as tx:
        rows = (await tx.execute(new, {"user": caller.user_id})).all()
        await keep_vectors(tx, services, ItemKind.PASSAGE, [(row.id, row.hash) for row in rows], generator)


class Asking(Rest):
    """A client that searches one corpus."""

    def __init__(self, url: str, corpus: str) -> None:
        super().__init__(url, USER)
        self.url = url
        self._corpus = corpus

    async def search(self, query: str) -> None:
        body = {"user_id": USER, "query": query, "app": "bench", "corpus": self._corpus}
        answer = json.loads(await self._connection.post("/api/v1/memories/search", json.dumps(body).encode()))
        found = answer["passages"] if self._corpus == "passages" else answer
        assert found["search_method"] == "hybrid", found
        assert found["results"], found


async def compare(urls: dict[str, str], rounds: int) -> dict[tuple[str, str], list[float]]:
    """The milliseconds of all searches, by folder and corpus."""
    pairs = [("memories", "memories"), ("both", "memories"), ("passages", "passages"), ("both", "passages")]
    clients = {pair: Asking(urls[pair[0]], pair[1]) for pair in pairs}
    return await in_turns(clients, questions(93), rounds)


async def in_turns(clients: Mapping[Name, Asking], asked: Iterator[str], rounds: int) -> dict[Name, list[float]]:
    """The milliseconds of all questions by the name of the client. All clients ask the same ones, in turns."""
    took: dict[Name, list[float]] = {name: [] for name in clients}
    for client in clients.values():
        await idle(client.url)
        await client.open()
        await timed(client.search, list(islice(asked, ASKED)))
    for number in range(rounds):
        queries = list(islice(asked, ASKED))
        for name in clients if number % 2 else reversed(list(clients)):
            took[name] += await timed(clients[name].search, queries)
    for client in clients.values():
        await client.close()
    return took


def fill(folders: dict[str, Path], size: int) -> None:
    """Fill the folders that are not there yet. That of both begins as a copy."""
    for folder in folders.values():
        folder.parent.mkdir(parents=True, exist_ok=True)
    if not folders["memories"].exists():
        seed(folders["memories"], size)
    for name in folders.keys() - {"memories"}:
        if not folders[name].exists():
            if name == "both":
                shutil.copytree(folders["memories"], folders[name], symlinks=True)
            started = time.perf_counter()
            asyncio.run(add_passages(folders[name], size))
            print(f"{size:,} passages stored in {time.perf_counter() - started:.0f} s ({name})", flush=True)


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=20, help=f"rounds of {ASKED} searches of each")
    parser.add_argument("--data", type=Path, help="keep the folders here, filled for the next run")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        data = arguments.data or stack.enter_context(temporary_folder("corpora"))
        folders = {name: data / f"{name}-{arguments.size}" / "data" for name in NAMES}
        fill(folders, arguments.size)
        urls = {name: stack.enter_context(running_service(folder, **QUIET)) for name, folder in folders.items()}
        took = asyncio.run(compare(urls, arguments.rounds))
    for corpus in ("memories", "passages"):
        alone, beside = (statistics.quantiles(took[name, corpus], n=20) for name in (corpus, "both"))
        print(
            f"  searches of {arguments.size:,} {corpus} ({len(took['both', corpus]):,}): p50 alone {alone[9]:.2f} ms, "
            f"beside the others {beside[9]:.2f} ms, ratio {beside[9] / alone[9]:.3f}; "
            f"p95 {alone[18]:.2f} and {beside[18]:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()

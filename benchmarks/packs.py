"""Latency of context packs beside one search of memories, on the same data.

    python -m benchmarks packs [--size 100000] [--rounds 15] [--data FOLDER]

One user has that many memories and that many passages of files, as in `corpora`, whose folder can be used again. The
project has a state. Packs and searches are asked in turns over REST.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
from contextlib import ExitStack
from pathlib import Path

from benchmarks.corpora import ASKED, Asking, fill, in_turns
from benchmarks.seed import USER, questions
from benchmarks.service import running_service, temporary_folder
from benchmarks.versions import QUIET

STATE = {"goal": "Measure packs", "parts": {str(number): f"part {number}" for number in range(40)}}


class Packing(Asking):
    """A client that saves the state of the project, and then asks for packs."""

    async def open(self) -> None:
        await super().open()
        body = {"user_id": USER, "app": "bench", "namespace": "default", "state": STATE, "reason": "It begins."}
        saved = json.loads(await self._connection.post("/api/v1/state/checkpoint", json.dumps(body).encode()))
        assert saved["revision"] >= 1, saved

    async def search(self, query: str) -> None:
        body = {"user_id": USER, "app": "bench", "query": query}
        pack = json.loads(await self._connection.post("/api/v1/context", json.dumps(body).encode()))
        assert pack["state"], pack
        assert pack["memories"], pack
        assert "note" not in pack, pack
        assert pack["budget"]["used"] <= pack["budget"]["target"]


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15, help=f"rounds of {ASKED} of each")
    parser.add_argument("--data", type=Path, help="keep the folders here, filled for the next run")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        data = arguments.data or stack.enter_context(temporary_folder("packs"))
        folders = {name: data / f"{name}-{arguments.size}" / "data" for name in ("memories", "both")}
        fill(folders, arguments.size)
        url = stack.enter_context(running_service(folders["both"], **QUIET))
        clients = {"search": Asking(url, "memories"), "pack": Packing(url, "memories")}
        took = asyncio.run(in_turns(clients, questions(94), arguments.rounds))
    search, pack = (statistics.quantiles(took[name], n=20) for name in ("search", "pack"))
    print(
        f"  {arguments.size:,} memories and passages ({len(took['pack']):,} each): p50 of a search {search[9]:.2f} ms, "
        f"of a pack {pack[9]:.2f} ms, ratio {pack[9] / search[9]:.2f}; p95 {search[18]:.2f} and {pack[18]:.2f}",
        flush=True,
    )


if __name__ == "__main__":
    main()

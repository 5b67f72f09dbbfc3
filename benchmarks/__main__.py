"""Lists and runs the benchmarks: `python -m benchmarks NAME [ARGUMENT …]`."""

from __future__ import annotations

import runpy
import sys

BENCHMARKS = {
    "latency": "add and search over REST, streamable HTTP and SSE, at several sizes and numbers of clients",
    "versions": "searches, adds, start and memory beside those of another checkout of this service, in turns",
    "answers": "what this version and another checkout answer differently to the same requests, over every door",
    "sync": "the cost of comparing, repairing and rebuilding the index, and of searches and writes while Qdrant hangs",
    "rebuild": "how long a lost index takes to come back while memories are written at several rates",
    "owners": "two installations and a copied database on one Qdrant, all written to: what each finds of its own",
    "security": "what authentication, access rules, the audit log and limits cost a search",
    "backup": "archives out and in: seconds, the service's memory, and whether both sides are the same",
    "grants": "what a thousand access rules cost a search among 100,000 memories",
    "page": "the page beside REST: the list, the search while typing, and the weight of the first load",
    "listing": "lists, filters, sorts and counts of one user with 100,000 memories; `--plans` shows the indexes",
    "categories": "how often the categories that are assigned without a language model are right, and what they cost",
    "refusals": "how many ordinary messages are refused for a secret that they seem to hold, and why",
    "extraction": "what it costs to make memories of what is said, and what is kept, beside mem0ai on one model",
    "corpora": "searches of memories and of passages, each alone and beside as many of the other",
    "packs": "context packs beside one search of memories, on the same data",
    "pack_quality": "how much of the evidence a context pack holds, beside a search in as many tokens",
    "corrections": "do context packs keep corrections: pairs of an older and a newer memory, at three budgets",
    "code": "how well searches find files by commit messages, and functions by their docstrings",
    "everyday": "what 60 everyday questions find in 40 memories: the right one, and nothing else",
    "loaders": "published data (LongMemEval, LoCoMo, ConvoMem, BEAM) as collections for `evaluation`",
    "evaluation": "how well searches find what is relevant, on judged collections: the arms alone, fused, and ours",
}


def main() -> None:
    """Run the one named, or list them."""
    if len(sys.argv) < 2 or sys.argv[1] not in BENCHMARKS:
        print(__doc__)
        for name, text in BENCHMARKS.items():
            print(f"  {name:14}{text}")
        sys.exit(0 if len(sys.argv) < 2 else 2)
    sys.argv = sys.argv[1:]
    runpy.run_module(f"benchmarks.{sys.argv[0]}", run_name="__main__")


if __name__ == "__main__":
    main()

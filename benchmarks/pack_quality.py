"""How much of the evidence a context pack holds, beside the first results of a search in as many tokens.

    python -m benchmarks pack_quality FOLDER … [--budget 2500] [--every 3] [--keep FOLDER]

Each FOLDER holds a judged collection, as in `evaluation`. Its documents are stored as memories, each question is asked
in its namespace, and a document counts as shown if its memory is in the text of the pack, whole or cut. The search
shows whole memories in the same lines, best first, as long as they fit.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path
from uuid import UUID

from benchmarks.collections import Question, mean, read
from benchmarks.evaluation import Asked, opened
from benchmarks.service import temporary_folder
from openmemory.projects import tokens
from openmemory.projects.context import ContextQuery
from openmemory.search.schemas import SearchQuery

_MOST = 100
"""The results of a search: more never fit."""


async def packed(asked: Asked, question: Question, budget: int) -> tuple[set[UUID], int]:
    """The memories that a pack shows, and its tokens."""
    query = ContextQuery(question.text, question.namespace, budget)
    pack = await asked.services.context.pack(asked.caller, query)
    assert pack.note is None, pack.note
    return {one.id for one in pack.memories}, pack.budget.used


async def listed(asked: Asked, question: Question, budget: int) -> tuple[set[UUID], int]:
    """The first memories of a search that fit into as many tokens, and their tokens."""
    query = SearchQuery(question.text, limit=_MOST, namespaces=(question.namespace,))
    shown, used = set[UUID](), 0
    for one in (await asked.services.search.search(asked.caller, query)).results:
        said = " ".join(one.memory.split())
        size = tokens.count(f"[{str(one.id)[:8]}] {one.created_at:%Y-%m-%d} {one.app_name}: {said}") + 1
        if used + size > budget:
            break
        shown.add(one.id)
        used += size
    return shown, used


async def compare(folder: Path, data: Path, budget: int, every: int) -> None:
    """Ask the questions of a collection, and print a line for packs and one for searches."""
    collection = read(folder)
    questions = collection.questions[::every]
    async with opened(collection, data) as asked:
        print(f"  {collection.name}: {len(questions)} questions, {budget:,} tokens")
        for name, show in (("pack", packed), ("search", listed)):
            found = [await show(asked, one, budget) for one in questions]
            named = [{asked.documents[id_] for id_ in ids} for ids, _ in found]
            some = mean([float(bool(one.relevant & there)) for one, there in zip(questions, named, strict=True)])
            every_one = mean([float(one.relevant <= there) for one, there in zip(questions, named, strict=True)])
            size = mean([float(used) for _, used in found])
            count = mean([float(len(ids)) for ids, _ in found])
            print(
                f"  {name:<8} any evidence {some:.3f}, all of it {every_one:.3f};"
                f" {count:.1f} memories in {size:,.0f} tokens",
                flush=True,
            )


def main() -> None:
    """Compare on every collection."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path)
    parser.add_argument("--budget", type=int, default=2_500)
    parser.add_argument("--every", type=int, default=3, help="every how-manieth question is asked")
    parser.add_argument("--keep", type=Path, help="where stored collections are kept")
    given = parser.parse_args()
    with temporary_folder("pack-quality") as temporary:
        for folder in given.folders:
            asyncio.run(compare(folder, given.keep or temporary, given.budget, given.every))


if __name__ == "__main__":
    main()

"""How much of the evidence a context pack holds, beside the first results of a search in as many tokens.

    python -m benchmarks pack_quality [FOLDER …] [--repository FOLDER] [--budget 2500] [--every 3] [--keep FOLDER]

Each FOLDER holds a judged collection, as in `evaluation`. Its documents are stored as memories, each question is asked
in its namespace, and a document counts as shown if its memory is in the text of the pack, whole or cut. The search
shows whole memories in the same lines, best first, as long as they fit.

`--repository` is a Git repository with a `CHANGELOG.md`. Its files are stored as they are now, and the entries of its
change log as memories. The subject of a commit that added entries is a question; these entries, and the files that the
commit changed, are the evidence. The search shows ten memories, and then passages as long as they fit.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from benchmarks.code import Task, commits, commits_and_files, store
from benchmarks.collections import Question, mean, read
from benchmarks.evaluation import Asked, opened, patient
from benchmarks.service import temporary_folder
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.projects import tokens
from openmemory.projects.context import ContextQuery
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services, open_services

_MOST = 100
"""The results of a search: more never fit."""

_MEMORIES = 10
_LOG = "CHANGELOG.md"
_MOST_ADDED = 10
"""The most entries that a commit may add to make a question. A commit that adds more rewrites the change log."""


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


@dataclass(frozen=True, slots=True)
class History:
    """The entries of a change log, the files of a repository, and questions with the entries and files that answer
    them."""

    entries: list[str]
    files: Task
    questions: list[tuple[str, frozenset[str], frozenset[str]]]


def history(repository: Path) -> History:
    """The history of a repository with a change log."""
    entries = _entries((repository / _LOG).read_text().splitlines())
    files = commits(repository, 0)
    del files.files[_LOG]
    command = ["git", "-C", str(repository), "log", "--no-merges", "--format=%x00%s", "-p", "--unified=0", "--", _LOG]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    changed = dict(commits_and_files(repository))
    questions = []
    for commit in log.split("\0")[1:]:
        subject, *lines = commit.split("\n")
        added = _entries([line[1:] for line in lines if line.startswith("+") and not line.startswith("+++")])
        starts = {_start(entry) for entry in added}
        there = frozenset(entry for entry in entries if _start(entry) in starts)
        touched = frozenset(changed.get(subject, ())) & files.files.keys()
        if there and touched and len(added) <= _MOST_ADDED:
            questions.append((subject, there, touched))
    return History(entries, files, questions)


def _entries(lines: Sequence[str]) -> list[str]:
    """The list items of Markdown, each on one line."""
    found = list[str]()
    for line in lines:
        if line.startswith("- "):
            found.append(line[2:].strip())
        elif line.startswith("  ") and found:
            found[-1] += f" {line.strip()}"
    return found


def _start(entry: str) -> str:
    """The first words of an entry, which stay when the rest is reworded."""
    return " ".join(entry.split()[:5])


async def compare_history(repository: Path, data: Path, budget: int) -> None:
    """Ask questions about the history of a repository. Print the figures of packs, and those of searches."""
    found = history(repository)
    async with open_services(patient(data / "history")) as services:
        await services.outbox_delivery.stop()
        spans = await store(services, found.files)
        caller = await services.directory.caller("evaluation", "evaluation", owner=True)
        stored = await services.memories.add_many(caller, [MemoryCreate(entry) for entry in found.entries])
        entries = dict(zip((one.id for one in stored), found.entries, strict=True))
        await services.outbox_delivery.drain()
        print(f"  {len(entries)} entries, {len(spans):,} passages, {len(found.questions)} questions, {budget:,} tokens")
        for name, show in (("pack", _packed_both), ("search", _listed_both)):
            by_entry, by_file, sizes = list[float](), list[float](), list[float]()
            for question, wanted, files in found.questions:
                ids, used = await show(services, caller, question, budget)
                by_entry.append(float(any(entries.get(id_) in wanted for id_ in ids)))
                by_file.append(float(any(id_ in spans and spans[id_].path in files for id_ in ids)))
                sizes.append(used)
            either = [max(pair) for pair in zip(by_entry, by_file, strict=True)]
            print(
                f"  {name:<8} an entry {mean(by_entry):.3f}, a file {mean(by_file):.3f}, either {mean(either):.3f};"
                f" {mean(sizes):,.0f} tokens",
                flush=True,
            )


async def _packed_both(services: Services, caller: Caller, question: str, budget: int) -> tuple[set[UUID], int]:
    pack = await services.context.pack(caller, ContextQuery(question, budget=budget))
    assert pack.note is None, pack.note
    return {one.id for one in (*pack.memories, *pack.passages)}, pack.budget.used


async def _listed_both(services: Services, caller: Caller, question: str, budget: int) -> tuple[set[UUID], int]:
    shown, used = set[UUID](), 0
    memories = await services.search.search(caller, SearchQuery(question, limit=_MEMORIES))
    passages = await services.search.passages(caller, SearchQuery(question, limit=_MOST))
    texts = [(one.id, f"[{str(one.id)[:8]}] {one.created_at:%Y-%m-%d}: {one.memory}") for one in memories.results]
    texts += [(one.id, f"[{str(one.id)[:8]}] {one.path}:\n{one.content}") for one in passages.results]
    for id_, said in texts:
        size = tokens.count(said) + 1
        if used + size > budget:
            break
        shown.add(id_)
        used += size
    return shown, used


def main() -> None:
    """Compare on every collection, and on the history of a repository."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--repository", type=Path, help="a Git repository with a CHANGELOG.md")
    parser.add_argument("--budget", type=int, default=2_500)
    parser.add_argument("--every", type=int, default=3, help="every how-manieth question is asked")
    parser.add_argument("--keep", type=Path, help="where stored collections are kept")
    given = parser.parse_args()
    with temporary_folder("pack-quality") as temporary:
        for folder in given.folders:
            asyncio.run(compare(folder, given.keep or temporary, given.budget, given.every))
        if given.repository is not None:
            asyncio.run(compare_history(given.repository, given.keep or temporary, given.budget))


if __name__ == "__main__":
    main()

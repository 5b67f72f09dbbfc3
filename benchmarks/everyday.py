"""Asks a small memory what people ask: are the right ones first, and is nothing else shown?

    python -m benchmarks everyday [FILE] [--each]

FILE is `benchmarks/everyday.json`, or a set in its form: `memories` of one person, each with its age in `days`, and
`questions`, each with the memories that are `right`, those that may be shown `also`, and the `older` ones that a right
one has replaced. A question without right ones has no answer, and a `broad` one asks for an overview. The answers to
broad questions are measured by the memories about the `person`, and by those that belong to a `project`.

The memories are stored in the embedded stores and embedded by the packaged model, without categories from a client.
Every question is asked by the code that serves a search, without a limit. `--each` shows what each question finds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

from benchmarks.collections import mean
from benchmarks.evaluation import patient
from benchmarks.service import temporary_folder
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.projects import tokens
from openmemory.search.schemas import SearchAnswer, SearchQuery
from openmemory.services import Services, open_services

FILE = Path(__file__).with_name("everyday.json")

TELLING = 10
"""The number of memories of an overview that are looked at."""


@dataclass(frozen=True, slots=True)
class EverydayMemory:
    """A memory of the set. `project`: it is about a project, not about the person."""

    id: str
    text: str
    days: float
    project: bool = False


@dataclass(frozen=True, slots=True)
class EverydayQuestion:
    """A question, and the ids of memories: `right` ones answer it, `also` ones may be shown, and `older` ones said what
    a right one has replaced."""

    text: str
    right: frozenset[str] = frozenset()
    also: frozenset[str] = frozenset()
    older: frozenset[str] = frozenset()
    broad: bool = False


@dataclass(frozen=True, slots=True)
class Everyday:
    """A set: the memories, the questions, and the memories that say who the person is."""

    memories: list[EverydayMemory]
    questions: list[EverydayQuestion]
    person: frozenset[str]


def read(file: Path = FILE) -> Everyday:
    """Reads a set.

    Raises:
        ValueError: a question names a memory that is not there.
    """
    data = json.loads(file.read_text(encoding="utf-8"))
    memories = [EverydayMemory(**each) for each in data["memories"]]
    known = {each.id for each in memories}
    questions = [_question(each) for each in data["questions"]]
    person = frozenset(data["person"])
    named = person.union(*(each.right | each.also | each.older for each in questions))
    if strange := named - known:
        raise ValueError(f"{file}: {min(strange)} is no memory")
    return Everyday(memories, questions, person)


def _question(data: dict[str, Any]) -> EverydayQuestion:
    named = {name: frozenset(data.get(name, ())) for name in ("right", "also", "older")}
    return EverydayQuestion(data["text"], broad=data.get("broad", False), **named)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a question found: the ids, best first, their scores, the tokens of their texts, and the note."""

    question: EverydayQuestion
    ids: Sequence[str]
    scores: Sequence[float | None]
    tokens: int
    note: str | None = None

    @property
    def is_right(self) -> bool:
        """True if a right one is first or second."""
        return bool(self.question.right & set(self.ids[:2]))

    @property
    def wrong(self) -> int:
        """The number of memories that have nothing to do with the question."""
        return len(set(self.ids) - self.question.right - self.question.also - self.question.older)

    @property
    def newer_is_first(self) -> bool:
        """True if a right one is shown before every older one."""
        replaced = self.question.older
        first = next((id_ for id_ in self.ids if id_ in replaced or id_ in self.question.right), None)
        return first in self.question.right - replaced


def report(everyday: Everyday, shown: Sequence[Shown]) -> list[str]:
    """The figures of all questions, line by line."""
    asked = [each for each in shown if not each.question.broad]
    answered = [each for each in asked if each.question.right]
    strange = [each for each in asked if not each.question.right]
    changed = [each for each in answered if each.question.older]
    project = {each.id for each in everyday.memories if each.project}
    lines = [
        f"{len(everyday.memories)} memories, {len(shown)} questions",
        f"  right one first or second   {mean([float(each.is_right) for each in answered]):.3f} of {len(answered)}",
        f"  wrong ones shown            {mean([float(each.wrong) for each in asked]):.2f} a question"
        f" ({mean([float(each.wrong) for each in answered]):.2f} where there is an answer)",
        f"  unanswerable ones empty     {mean([float(not each.ids) for each in strange]):.3f} of {len(strange)}",
        f"  newer of two facts first    {mean([float(each.newer_is_first) for each in changed]):.3f} of {len(changed)}",
        f"  tokens shown                {mean([float(each.tokens) for each in asked]):.0f} a question",
    ]
    for each in shown:
        if each.question.broad:
            first = set(each.ids[:TELLING])
            lines.append(
                f"  “{each.question.text}”: {len(first & everyday.person)} of {len(everyday.person)} about the person,"
                f" {len(first & project)} of projects, among the first {len(first)}"
            )
    return lines


async def store(services: Services, caller: Caller, everyday: Everyday) -> dict[UUID, str]:
    """Stores the memories, as old as they are to be. Returns their names by id."""
    now = datetime.now(UTC)
    news = [MemoryCreate(each.text, created_at=now - timedelta(days=each.days)) for each in everyday.memories]
    added = await services.memories.add_many(caller, news)
    await services.outbox_delivery.drain()
    return {one.id: each.id for one, each in zip(added, everyday.memories, strict=True)}


async def ask(services: Services, caller: Caller, everyday: Everyday, names: dict[UUID, str]) -> list[Shown]:
    """Asks all questions."""
    found = []
    for question in everyday.questions:
        answer: SearchAnswer = await services.search.search(caller, SearchQuery(question.text))
        size = sum(tokens.count(result.memory) for result in answer.results)
        ids, scores = [names[result.id] for result in answer.results], [result.score for result in answer.results]
        found.append(Shown(question, ids, scores, size, answer.note))
    return found


async def run(file: Path, data: Path, *, each: bool) -> None:
    """Store the set, ask its questions, and print the figures."""
    everyday = read(file)
    async with open_services(patient(data)) as services:
        await services.outbox_delivery.stop()
        caller = await services.directory.caller("everyday", None, owner=True)
        shown = await ask(services, caller, everyday, await store(services, caller, everyday))
    if each:
        print("\n".join(map(line, shown)))
    print("\n".join(report(everyday, shown)))


def line(shown: Shown) -> str:
    """A question and what it found, marked if something is missing, wrong, or older than what replaced it."""
    question = shown.question
    missing = bool(question.right) and not shown.is_right
    older = bool(question.older) and not shown.newer_is_first
    mark = "!" if missing or older or (shown.wrong and not question.broad) else " "
    scores = ("" if score is None else f" {score:.3f}" for score in shown.scores)
    found = ", ".join(f"{id_}{score}" for id_, score in zip(shown.ids, scores, strict=True))
    return f"{mark} {question.text}: {found or 'nothing'}{f' ({shown.note})' if shown.note else ''}"


def main() -> None:
    """Measure a set."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", nargs="?", type=Path, default=FILE, metavar="FILE")
    parser.add_argument("--each", action="store_true", help="show what each question finds")
    given = parser.parse_args()
    with temporary_folder("everyday") as folder:
        asyncio.run(run(given.file, folder, each=given.each))


if __name__ == "__main__":
    main()

"""How well searches find files by commit messages and functions by their docstrings, as `openmemory ingest` keeps them.

    python -m benchmarks code [--commits REPOSITORY] [--docstrings FOLDER] [--symbols FOLDER] [--questions N]

`--commits` stores the files of a repository as they are now. The subject of each commit that changed one to ten of them
is a question, and the changed files are the answers. `--docstrings` stores the Python files of a folder without their
docstrings. The first sentence of a docstring is a question, and a passage that overlaps its function is the answer.
Beside ours stand the two arms as they answer the whole question, and both fused by reciprocal ranks of equal weight.
"Lines" cuts every file between paragraphs instead of at headings and by indentation. `--symbols` compares the names
that passages define with those that Python's own parser finds.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import random
import re
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch
from uuid import UUID

from sqlalchemy import text

from benchmarks.collections import Collection, Question, interval, mean
from benchmarks.evaluation import Asked, by_ranks, patient
from benchmarks.service import temporary_folder
from openmemory.doors.cli.reading import Folder
from openmemory.errors import Invalid
from openmemory.search.corpus import PASSAGES
from openmemory.services import Services, open_services
from openmemory.sources import cutting, files
from openmemory.sources.schemas import NewFile
from openmemory.sources.symbols import symbols

_FILES_TOGETHER = 200
_MOST_FILES = 10
"""Files of one commit. One that changes more is about none of them."""
_FEWEST_WORDS = 5
_NAMESPACE = "default"


class Span(NamedTuple):
    """A function in a file, by its first and last line."""

    path: str
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class Task:
    """Files, and questions about them. Each question has the spans that answer it; a span of no lines is a file."""

    name: str
    files: dict[str, str]
    questions: list[tuple[str, list[Span]]]


def commits(repository: Path, most: int) -> Task:
    """The files of a repository, and the subjects of its commits."""
    folder = Folder.of(repository)
    texts = {path: found[0] for path in folder.files() if (found := folder.read(path)) is not None}
    questions = []
    for subject, changed in commits_and_files(repository):
        there = [Span(path, 0, 0) for path in changed if path in texts]
        if there and len(changed) <= _MOST_FILES and len(subject.split()) >= _FEWEST_WORDS:
            questions.append((subject, there))
    return Task("commits", texts, questions[:most])


def commits_and_files(repository: Path) -> Iterator[tuple[str, list[str]]]:
    """The subject of each commit, the last first, and the files that it changed."""
    command = ["git", "-C", str(repository), "log", "--no-merges", "--name-only", "--format=%x00%s"]
    log = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    for entry in log.split("\0")[1:]:
        subject, *changed = [line for line in entry.split("\n") if line]
        yield subject, changed


def docstrings(folder: Path, most: int) -> Task:
    """The Python files of a folder without docstrings, and the first sentences of these."""
    texts, questions = {}, list[tuple[str, list[Span]]]()
    for file in sorted(folder.rglob("*.py")):
        source = file.read_text(encoding="utf-8", errors="replace")
        path = file.relative_to(folder).as_posix()
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError):
            continue
        lines = source.splitlines(keepends=True)
        for node in ast.walk(tree):
            if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Module):
                continue
            said = ast.get_docstring(node)
            if not said:
                continue
            at = node.body[0]
            for number in range(at.lineno - 1, at.end_lineno or at.lineno):
                lines[number] = "\n"
            sentence = " ".join(re.split(r"(?<=\.)\s|\n\s*\n", said)[0].split())
            is_function = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            if is_function and len(node.body) > 1 and len(sentence.split()) >= _FEWEST_WORDS:
                questions.append((sentence, [Span(path, node.lineno, node.end_lineno or node.lineno)]))
        texts[path] = "".join(lines)
    random.Random(7).shuffle(questions)
    return Task("docstrings", texts, questions[:most])


def _every_line_alike() -> AbstractContextManager[object]:
    stack = ExitStack()
    whole = cutting.pieces
    stack.enter_context(patch.object(files, "pieces", lambda said, _: whole(said, "text")))
    return stack


VARIANTS: Mapping[str, Callable[[], AbstractContextManager[object]]] = {
    "as it is": ExitStack,
    "lines": _every_line_alike,
}


async def store(services: Services, task: Task) -> dict[UUID, Span]:
    """Stores the files. Returns the spans of the passages."""
    caller = await services.directory.caller("evaluation", "evaluation")
    everything = list(task.files.items())
    for at in range(0, len(everything), _FILES_TOGETHER):
        some = [NewFile(path, said) for path, said in everything[at : at + _FILES_TOGETHER]]
        for result in await services.files.store(caller, _NAMESPACE, some):
            if isinstance(result, Invalid):
                raise result
    await services.outbox_delivery.drain()
    query = (
        "SELECT p.id, s.locator, p.first_line, p.last_line FROM passages AS p JOIN sources AS s ON s.id = p.source_id"
    )
    async with services.database.statement() as tx:
        return {row[0]: Span(*row[1:]) for row in await tx.execute(text(query))}


def places(found: Sequence[UUID], spans: Mapping[UUID, Span], wanted: Sequence[Span]) -> list[int]:
    """The places of the wanted spans, from 1; 0 if one was not found. Passages of one file are one place for files."""
    seen, first = list[str](), dict[Span, int]()
    for number, id_ in enumerate(found, 1):
        span = spans[id_]
        if span.path not in seen:
            seen.append(span.path)
        for one in wanted:
            if one.path == span.path and (not one.last or (one.first <= span.last and span.first <= one.last)):
                first.setdefault(one, number if one.last else seen.index(span.path) + 1)
    return [first.get(one, 0) for one in wanted]


def _line(name: str, all_places: Sequence[Sequence[int]]) -> str:
    def hit(most: int) -> list[float]:
        return [float(any(0 < place <= most for place in some)) for some in all_places]

    recall = [mean([float(0 < place <= 10) for place in some]) for some in all_places]
    low, high = interval(recall)
    figures = f"{mean(hit(1)):7.3f} {mean(hit(5)):7.3f} {mean(hit(10)):7.3f} {mean(recall):7.3f} [{low:.3f},{high:.3f}]"
    return f"  {name:28} {figures}"


async def evaluate(task: Task, data: Path, worst: int) -> None:
    """Asks all questions of a task in each variant, and prints the table."""
    print(f"{task.name}: {len(task.files):,} files, {len(task.questions):,} questions")
    print(f"  {'':28} {'hit@1':>7} {'hit@5':>7} {'hit@10':>7} {'recall@10':>9}")
    for number, (variant, changed) in enumerate(VARIANTS.items()):
        with changed():
            async with open_services(patient(data / f"{task.name}-{number}")) as services:
                await services.outbox_delivery.stop()
                spans = await store(services, task)
                found = await _answers(services, task)
        for arm, answers in found.items():
            if arm == "ours" or number == 0:
                each = [places(ids, spans, wanted) for ids, (_, wanted) in zip(answers, task.questions, strict=True)]
                print(_line(f"{arm}, {variant}", each))
                sys.stdout.flush()
                if arm == "ours" and number == 0:
                    for line in _worst(task, each, answers, spans, worst):
                        print(line)


async def _answers(services: Services, task: Task) -> dict[str, list[list[UUID]]]:
    caller = await services.directory.caller("evaluation", "evaluation", owner=True)
    asked = Asked(services, caller, Collection(task.name, [], []), {}, PASSAGES)
    found: dict[str, list[list[UUID]]] = {"BM25": [], "model": [], "equal RRF": [], "ours": []}
    for number, (question, _) in enumerate(task.questions):
        one = Question(str(number), question, _NAMESPACE, "", frozenset())
        words, near = await asked.arms(one)
        found["BM25"].append(words)
        found["model"].append(near)
        found["equal RRF"].append(by_ranks(words, near))
        found["ours"].append(await asked.ours(one))
    return found


def _worst(
    task: Task, each: Sequence[Sequence[int]], answers: Sequence[Sequence[UUID]], spans: Mapping[UUID, Span], most: int
) -> Iterator[str]:
    missed = [number for number, some in enumerate(each) if not any(some)]
    for number in missed[:most]:
        question, wanted = task.questions[number]
        yield f"    missed: {question!r}"
        yield f"      wanted {', '.join(f'{one.path}:{one.first}' for one in wanted)}"
        yield f"      found {', '.join(f'{spans[id_].path}:{spans[id_].first}' for id_ in answers[number][:3])}"


def symbols_of(folder: Path) -> str:
    """How many of the definitions in the Python files of a folder are found, as `name` and as `owner.name`."""
    qualified, bare = Counter[bool](), Counter[bool]()
    count, seconds = 0, 0.0
    for path in sorted(folder.rglob("*.py")):
        text_ = path.read_text(encoding="utf-8", errors="replace")
        try:
            defined = set(_definitions(ast.parse(text_), ""))
        except (SyntaxError, ValueError):
            continue
        parts = cutting.pieces(text_, "python")
        started = time.process_time()
        found = {name for part in parts for name in symbols(part.content, part.heading)}
        seconds += time.process_time() - started
        count += len(parts)
        qualified.update(name in found for name in defined)
        bare.update(name in found for name in {name.rpartition(".")[2] for name in defined})
    shares = [f"{one[True] / max(1, one.total()):.3f} of {one.total()}" for one in (bare, qualified)]
    return f"names {shares[0]}, with their owners {shares[1]}; {seconds / max(1, count) * 1e6:.0f} µs a passage"


def _definitions(node: ast.AST, owner: str) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield f"{owner}.{child.name}".lstrip(".").lower()
            yield from _definitions(child, child.name)
        else:
            yield from _definitions(child, owner)


def main() -> None:
    """Evaluate what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--commits", type=Path, help="a Git repository")
    parser.add_argument("--docstrings", type=Path, help="a folder of Python files")
    parser.add_argument("--symbols", type=Path, help="a folder of Python files")
    parser.add_argument("--questions", type=int, default=300)
    parser.add_argument("--worst", type=int, default=0, help="how many missed questions to show")
    given = parser.parse_args()
    if given.symbols is not None:
        print(symbols_of(given.symbols))
    with temporary_folder("code") as data:
        if given.commits is not None:
            asyncio.run(evaluate(commits(given.commits, given.questions), data, given.worst))
        if given.docstrings is not None:
            asyncio.run(evaluate(docstrings(given.docstrings, given.questions), data, given.worst))


if __name__ == "__main__":
    main()

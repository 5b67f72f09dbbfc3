"""Judged collections in the layout of BEIR, read from a folder: documents, questions, and which answers which."""

from __future__ import annotations

import json
import math
import random
import re
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FIRST = datetime(2020, 1, 1, tzinfo=UTC)
"""When documents without a date were written: in their order, a minute apart."""

_SENTENCE_END = re.compile(r"(?<=[.!?…])\s+")
_SPEAKER = re.compile(r"[^\s:][^:\n]{0,39}: ")
_BETWEEN_FRAGMENTS = timedelta(seconds=5)
_BETWEEN_DOCUMENTS = timedelta(minutes=1)

_DATES = ("%I:%M %p on %d %B, %Y", "%Y/%m/%d (%a) %H:%M", "%Y-%m-%d %H:%M", "%Y/%m/%d", "%Y-%m-%d")


@dataclass(frozen=True, slots=True)
class Document:
    """One text; `thread` and `written` as far as the collection tells them."""

    id: str
    text: str
    namespace: str
    thread: str | None
    written: datetime


@dataclass(frozen=True, slots=True)
class Question:
    """One question with the ids of the documents that answer it."""

    id: str
    text: str
    namespace: str
    category: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True)
class Collection:
    """Everything of one folder; only questions that a document answers."""

    name: str
    documents: list[Document]
    questions: list[Question]


def read(folder: Path) -> Collection:
    """`corpus.jsonl` ({_id, title, text, metadata{namespace, session, date}}), `queries.jsonl` ({_id, text,
    metadata{namespace, category}}) and `qrels.tsv` or `qrels/test.tsv` (query-id, corpus-id, score).

    A document without a namespace is in that of its id, up to a `|`, or of the collection.

    Raises:
        ValueError: a judgement names a document or a question that is not there.
    """
    documents = []
    for number, line in enumerate(_lines(folder / "corpus.jsonl")):
        metadata = line.get("metadata") or {}
        text = f"{line['title']}\n{line['text']}" if line.get("title") else line["text"]
        written = _date(metadata.get("date"), number)
        namespace = _namespace(line["_id"], metadata, folder.name)
        documents.append(Document(line["_id"], text, namespace, metadata.get("session"), written))
    known = {document.id for document in documents}
    relevant: dict[str, set[str]] = defaultdict(set)
    file = folder / "qrels.tsv"
    for row in (file if file.exists() else folder / "qrels" / "test.tsv").read_text(encoding="utf-8").splitlines()[1:]:
        question, document, grade = row.split("\t")
        if float(grade) > 0:
            if document not in known:
                raise ValueError(f"{file}: {document} is not in the corpus")
            relevant[question].add(document)
    questions = []
    for line in _lines(folder / "queries.jsonl"):
        if answers := relevant.pop(line["_id"], None):
            metadata = line.get("metadata") or {}
            namespace = _namespace(line["_id"], metadata, folder.name)
            category = str(metadata.get("category", ""))
            questions.append(Question(line["_id"], line["text"], namespace, category, frozenset(answers)))
    if relevant:
        raise ValueError(f"{file}: {next(iter(relevant))} is not among the questions")
    return Collection(folder.name, documents, questions)


def fragments(collection: Collection) -> Collection:
    """The collection with its documents cut at sentence ends, as people send one message as several short ones.

    Fragments keep the id, the thread and the speaker ("Name: ") of their document, so finding any of them finds the
    document. In a thread, a fragment follows the one before it after five seconds, and a document after a minute.
    """
    cut = []
    elapsed: dict[tuple[str, str | None], timedelta] = defaultdict(timedelta)
    for document in collection.documents:
        prefix = _SPEAKER.match(document.text)
        speaker = prefix.group() if prefix else ""
        thread = document.namespace, document.thread
        elapsed[thread] += _BETWEEN_DOCUMENTS
        for sentence in _SENTENCE_END.split(document.text.removeprefix(speaker).strip()):
            cut.append(replace(document, text=speaker + sentence, written=document.written + elapsed[thread]))
            elapsed[thread] += _BETWEEN_FRAGMENTS
    return replace(collection, name=f"{collection.name}-fragments", documents=cut)


def half_joined(collection: Collection) -> Collection:
    """The collection with every second thread of a namespace as one long document, which answers what any document of
    the thread answers."""
    threads = _threads(collection)
    joined: dict[str, Document] = {}
    kept: list[Document] = []
    for members in threads.values():
        for at, thread in enumerate(members.values()):
            if at % 2:
                one = replace(thread[0], text="\n".join(each.text for each in thread), thread=None)
                joined |= dict.fromkeys((each.id for each in thread), one)
                kept.append(one)
            else:
                kept += thread
    questions = [
        replace(one, relevant=frozenset(joined[id_].id if id_ in joined else id_ for id_ in one.relevant))
        for one in collection.questions
    ]
    return Collection(f"{collection.name}-half-joined", kept, questions)


def among_long(collection: Collection) -> Collection:
    """The collection with the threads of all other namespaces added to each namespace, each as one long document that
    answers nothing."""
    threads = _threads(collection)
    added = [
        replace(
            thread[0],
            id=f"{name} {thread[0].id}",
            namespace=name,
            thread=None,
            text="\n".join(one.text for one in thread),
        )
        for name in threads
        for other, members in threads.items()
        if other != name
        for thread in members.values()
    ]
    return replace(collection, name=f"{collection.name}-among-long", documents=[*collection.documents, *added])


def _threads(collection: Collection) -> dict[str, dict[str, list[Document]]]:
    """The documents by namespace and thread. A document without a thread is one of its own."""
    found: dict[str, dict[str, list[Document]]] = defaultdict(dict)
    for one in collection.documents:
        found[one.namespace].setdefault(one.thread or one.id, []).append(one)
    return found


def _namespace(id_: str, metadata: dict[str, Any], otherwise: str) -> str:
    return metadata.get("namespace") or (id_.split("|", maxsplit=1)[0] if "|" in id_ else otherwise)


def _date(said: str | None, number: int) -> datetime:
    """Documents of one date follow one another in their order."""
    for form in _DATES if said else ():
        try:
            return datetime.strptime(said or "", form).replace(tzinfo=UTC) + timedelta(milliseconds=number)
        except ValueError:
            continue
    return FIRST + timedelta(minutes=number)


def _lines(file: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]


MEASURES = ("recall@5", "recall@10", "recall@20", "all@10", "hit@5", "MRR@10", "nDCG@10")


def measured(found: Sequence[str], relevant: frozenset[str]) -> dict[str, float]:
    """The measures of one answer, its documents best first. A document that is found again takes a place and gains
    nothing."""
    hits = [document in relevant and document not in found[:place] for place, document in enumerate(found)]
    gain = sum(hit / math.log2(rank + 1) for rank, hit in enumerate(hits[:10], 1))
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(relevant)) + 1))
    return {
        **{f"recall@{at}": sum(hits[:at]) / len(relevant) for at in (5, 10, 20)},
        "all@10": float(sum(hits[:10]) == len(relevant)),
        "hit@5": float(any(hits[:5])),
        "MRR@10": next((1 / rank for rank, hit in enumerate(hits[:10], 1) if hit), 0.0),
        "nDCG@10": gain / ideal,
    }


def misses(found: Sequence[str], relevant: frozenset[str]) -> int:
    """The number of documents before the first relevant one; their number if none is relevant."""
    return next((place for place, document in enumerate(found) if document in relevant), len(found))


def mean(values: Sequence[float]) -> float:
    """Their mean; 0 of none."""
    return statistics.fmean(values) if values else 0.0


def interval(values: Sequence[float], *, rounds: int = 1_000, seed: int = 1) -> tuple[float, float]:
    """The bootstrap interval that holds the mean with 95 % confidence (percentile method, Efron 1979)."""
    chance = random.Random(seed)
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(rounds))
    return means[int(0.025 * rounds)], means[int(0.975 * rounds) - 1]

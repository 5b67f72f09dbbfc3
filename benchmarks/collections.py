"""Judged collections in the layout of BEIR, read from a folder: documents, questions, and which answers which."""

from __future__ import annotations

import json
import math
import random
import statistics
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

FIRST = datetime(2020, 1, 1, tzinfo=UTC)
"""When documents without a date were written: in their order, a minute apart."""

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


MEASURES = ("recall@5", "recall@10", "recall@20", "hit@5", "MRR@10", "nDCG@10")


def measured(found: Sequence[str], relevant: frozenset[str]) -> dict[str, float]:
    """The measures of one answer, its documents best first."""
    hits = [document in relevant for document in found]
    gain = sum(hit / math.log2(rank + 1) for rank, hit in enumerate(hits[:10], 1))
    ideal = sum(1 / math.log2(rank + 1) for rank in range(1, min(10, len(relevant)) + 1))
    return {
        **{f"recall@{at}": sum(hits[:at]) / len(relevant) for at in (5, 10, 20)},
        "hit@5": float(any(hits[:5])),
        "MRR@10": next((1 / rank for rank, hit in enumerate(hits[:10], 1) if hit), 0.0),
        "nDCG@10": gain / ideal,
    }


def mean(values: Sequence[float]) -> float:
    """Their mean; 0 of none."""
    return statistics.fmean(values) if values else 0.0


def interval(values: Sequence[float], *, rounds: int = 1_000, seed: int = 1) -> tuple[float, float]:
    """The bootstrap interval that holds the mean with 95 % confidence (percentile method, Efron 1979)."""
    chance = random.Random(seed)
    means = sorted(statistics.fmean(chance.choices(values, k=len(values))) for _ in range(rounds))
    return means[int(0.025 * rounds)], means[int(0.975 * rounds) - 1]

"""Reads what the ranking needs of the candidates: one statement for their rows, their neighbours in threads, and the
tokens of the best.

A candidate that the caller may not read has no row, and is not ranked. So nothing that is hidden changes a score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    LargeBinary,
    Select,
    Text,
    Uuid,
    bindparam,
    case,
    cast,
    column,
    func,
    literal_column,
    select,
    true,
    tuple_,
    union_all,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import aliased

from openmemory.access.readable import readable_by
from openmemory.content_policy.injection import LABEL
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.index import tokens
from openmemory.index.models import ItemKind
from openmemory.index.sync.entries import array_of
from openmemory.index.tokens import StoredTokens
from openmemory.search.corpus import MEMORIES, Corpus

MAX_HITS = 15
"""The number of first candidates whose neighbours in their threads become candidates too."""

STEPS = 2
"""The number of neighbours on either side."""

MAX_COMPARED = 60
"""The number of first candidates whose tokens are read."""

HEAD = 60
"""The number of characters at the start of a text that are read: enough for the name of a speaker."""


FIRST, SAID = 10, 4_000
"""The number of first candidates whose texts are read, for the names in them, and of the characters of each."""


class CandidateRow(NamedTuple):
    """The properties of a text that the ranking reads. `thread` includes the namespace; `role` is that of its
    metadata, or the speaker of a passage. `head` and `tail` are its ends. `said` is the text of the
    first candidates."""

    id: UUID
    thread: str | None
    namespace: str
    created_at: datetime
    labels: Sequence[str]
    length: int
    head: str
    tail: str
    role: str | None
    said: str | None

    @property
    def flagged(self) -> bool:
        """True if the text was flagged as a prompt injection."""
        return LABEL in self.labels

    @property
    def asks(self) -> bool:
        """True if the text ends with a question mark."""
        return self.tail.rstrip().endswith(("?", "\uff1f", "\u061f"))


class ThreadNeighbour(NamedTuple):
    """A hit in a thread and a text `step` positions after it there, or before it if `step` is negative."""

    hit: UUID
    neighbour: UUID
    step: int


@dataclass(slots=True)
class CandidateRows:
    """The rows of candidates and of their neighbours by id, how these follow one another, and the tokens of the
    first."""

    rows: dict[UUID, CandidateRow]
    links: list[ThreadNeighbour]
    tokens: StoredTokens

    def beside(self) -> dict[UUID, dict[int, UUID]]:
        """For each text, those at most `STEPS` before or after it in its thread, by their steps from it."""
        found: dict[UUID, dict[int, UUID]] = defaultdict(dict)
        for thread in self._around():
            for step, id_ in thread.items():
                for other, neighbour in thread.items():
                    if 0 < abs(other - step) <= STEPS:
                        found[id_].setdefault(other - step, neighbour)
        return found

    def _around(self) -> list[dict[int, UUID]]:
        threads: dict[UUID, dict[int, UUID]] = {}
        for link in self.links:
            threads.setdefault(link.hit, {0: link.hit})[link.step] = link.neighbour
        return list(threads.values())


async def candidate_rows(
    tx: Tx, caller: Caller, ids: Sequence[UUID], model: str | None, *, corpus: Corpus = MEMORIES, all_rows: bool = False
) -> CandidateRows:
    """Reads the rows of candidates, best first, that the caller may read, and what else the ranking needs.

    `model`: the model whose tokens are read; None: none are. `all_rows`: also rows of the user that the caller may not
    read now, because another statement decides on the reading (`as_of`).
    """
    values = {
        **caller.parameters,
        "candidates": array_of(ids),
        "hits": array_of(ids[:MAX_HITS]),
        "first": array_of(ids[:FIRST]),
        **tokens.wanted(caller.user_id, model or "", ids[:MAX_COMPARED]),
    }
    rows = await _statement(caller.owner, caller.default, corpus, model is not None, all_rows).rows(tx, values)
    size = len(CandidateRow._fields)
    found: dict[UUID, CandidateRow] = {}
    links, kept = [], tokens.NONE
    for row in rows:
        hit, step, heads, packed = row[size:]
        if row[0] is None:
            if heads is not None:
                kept = tokens.unpacked(ids[:MAX_COMPARED], heads, packed)
        else:
            found.setdefault(row[0], CandidateRow(*row[:size]))
            if hit is not None:
                links.append(ThreadNeighbour(hit, row[0], step))
    return CandidateRows(found, links, kept)


def _columns(rows: Any, kind: ItemKind) -> list[Any]:
    memories = kind is ItemKind.MEMORY
    first: Any = cast(bindparam("first", type_=Text), ARRAY(Uuid))
    return [
        rows.id,
        rows.thread_id.label("thread"),
        rows.namespace,
        rows.created_at,
        rows.labels,
        func.char_length(rows.content).label("length"),
        func.left(rows.content, literal_column(str(HEAD))).label("head"),
        func.right(rows.content, literal_column("4")).label("tail"),
        (rows.metadata_.op("->>")(literal_column("'role'")) if memories else rows.speaker).label("role"),
        case((rows.id == func.any(first), func.left(rows.content, literal_column(str(SAID))))).label("said"),
    ]


@cache
def _statement(owner: bool, default: Default, corpus: Corpus, with_tokens: bool, all_rows: bool) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    types = ("uuid", "bigint", "bytea", "bytea")
    none: list[Any] = [literal_column(f"NULL::{type_}") for type_ in types]
    listed, near = _listed(caller, corpus, all_rows), _linked(caller, corpus).subquery()
    empty: list[Any] = [literal_column("NULL")] * (len(CandidateRow._fields) - 1)
    parts: list[Any] = [
        select(*listed.subquery().c, *none),
        select(*near.c, *none[2:]),
    ]
    if with_tokens:
        kept = tokens.packed(corpus.kind).columns(heads=LargeBinary, tokens=LargeBinary).subquery()
        parts.append(select(literal_column("NULL"), *empty, *none[:2], kept.c.heads, kept.c.tokens))
    return CompiledStatement(union_all(*parts), plain=True, binary=True)


def _ids(name: str) -> Any:
    return (
        func.unnest(cast(bindparam(name, type_=Text), ARRAY(Uuid)))
        .table_valued(column("id", Uuid), name=name)
        .render_derived()
    )


def _listed(caller: Caller, corpus: Corpus, all_rows: bool) -> Select[Any]:
    rows, ids = corpus.rows, _ids("candidates")
    mine = rows.user_id == bindparam("caller_user_id", type_=Uuid()) if all_rows else readable_by(caller, rows)
    return select(*_columns(rows, corpus.kind)).select_from(ids).join(rows, rows.id == ids.c.id).where(mine)


def _linked(caller: Caller, corpus: Corpus) -> Select[Any]:
    """Selects the neighbours of the ids bound as `hits`, with the hit and the step from it. The caller may read all."""
    rows, hits = corpus.rows, _ids("hits")
    near = union_all(*(select(*_near(caller, corpus, backwards).subquery().c) for backwards in (True, False))).lateral(
        "near"
    )
    *own, step = near.c
    return (
        select(*own, rows.id.label("hit"), step)
        .select_from(hits)
        .join(rows, rows.id == hits.c.id)
        .join(near, true())
        .where(rows.thread_id.is_not(None), readable_by(caller, rows))
    )


def _near(caller: Caller, corpus: Corpus, backwards: bool) -> Select[Any]:
    """Selects the texts just before or just after one in its thread, with their steps from it."""
    rows: Any = corpus.rows
    other: Any = aliased(rows)
    here, there = tuple_(rows.created_at, rows.id), tuple_(other.created_at, other.id)
    order: list[Any] = [other.created_at, other.id]
    if backwards:
        order = [key.desc() for key in order]
    step = func.row_number().over(order_by=order)
    return (
        select(*_columns(other, corpus.kind), (-step if backwards else step).label("step"))
        .where(
            other.user_id == rows.user_id,
            other.thread_id == rows.thread_id,
            other.namespace == rows.namespace,
            there < here if backwards else there > here,
            readable_by(caller, other),
        )
        .order_by(*order)
        .limit(literal_column(str(STEPS)))
        .correlate(rows)
    )

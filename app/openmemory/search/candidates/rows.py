"""Reads what the ranking needs of the candidates: one statement for their rows, their neighbours in threads, and the
tokens of all.

A candidate that the caller may not read has no row, and is not ranked. So nothing that is hidden changes a score.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from itertools import accumulate
from typing import Any, NamedTuple
from uuid import UUID

import numpy as np
from sqlalchemy import (
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
from openmemory.index.entries import array_of
from openmemory.index.models import EmbeddingTokens, ItemKind
from openmemory.search.corpus import MEMORIES, Corpus

MAX_HITS = 15
"""The number of first candidates whose neighbours in their threads become candidates too."""

STEPS = 2
"""The number of neighbours on either side."""

MAX_COMPARED = 320
"""The number of first candidates whose tokens are read. Most searches have fewer."""

HEAD = 60
"""The number of characters at the start of a text that are read: enough for the name of a speaker."""


FIRST, MAX_TEXT_CHARACTERS = 10, 4_000
"""The number of first candidates whose texts are read, for the names in them, and of the characters of each."""


class CandidateRow(NamedTuple):
    """The columns of a candidate that the ranking reads.

    `role`: the role in the metadata of a memory, or the speaker of a passage. `head`, `tail`: the beginning and the end
    of the text. `text`: the text itself, which only the first candidates have. `tokens`: the stored tokens of the
    present text; empty if there are none. `flagged`: the text reads like a prompt injection.
    """

    thread: str | None
    namespace: str
    created_at: datetime
    flagged: bool
    length: int
    head: str
    tail: str
    role: str | None
    text: str | None
    tokens: bytes

    @property
    def is_question(self) -> bool:
        """True if the text ends with a question mark."""
        return self.tail.rstrip().endswith(("?", "\uff1f", "\u061f"))


class ThreadNeighbour(NamedTuple):
    """A hit in a thread and a text `step` positions after it there, or before it if `step` is negative."""

    hit: UUID
    neighbour: UUID
    step: int


@dataclass(slots=True)
class CandidateRows:
    """The rows of candidates by id, those of their neighbours in threads, and how these follow one another."""

    rows: dict[UUID, CandidateRow]
    neighbours: dict[UUID, CandidateRow]
    links: list[ThreadNeighbour]

    def beside(self) -> dict[UUID, dict[int, UUID]]:
        """For each text, those at most `STEPS` before or after it in its thread, by their steps from it."""
        neighbours: dict[UUID, dict[int, UUID]] = defaultdict(dict)
        for thread in self._around():
            for step, id_ in thread.items():
                for other, neighbour in thread.items():
                    if 0 < abs(other - step) <= STEPS:
                        neighbours[id_].setdefault(other - step, neighbour)
        return neighbours

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
        **({} if model is None else {"model": model}),
    }
    statement = _statement(caller.owner, caller.default, corpus, model is not None, all_rows)
    candidates, neighbours, links = dict[UUID, CandidateRow](), dict[UUID, CandidateRow](), list[ThreadNeighbour]()
    *rows, (*_, sizes, packed_tokens) = await statement.rows(tx, values)
    ends = accumulate(np.frombuffer(sizes or b"", dtype=">i4").tolist())
    start = 0
    for (id_, place, step, *columns, _, _), end in zip(rows, ends, strict=True):
        row = CandidateRow._make((*columns, packed_tokens[start:end]))
        start = end
        if id_ is None:
            candidates[ids[place - 1]] = row
        else:
            neighbours[id_] = row
            links.append(ThreadNeighbour(ids[place - 1], id_, step))
    return CandidateRows(candidates, {id_: row for id_, row in neighbours.items() if id_ not in candidates}, links)


def _columns(rows: Any, kind: ItemKind) -> list[Any]:
    memories = kind is ItemKind.MEMORY
    return [
        rows.thread_id.label("thread"),
        rows.namespace,
        rows.created_at,
        (literal_column(f"'{LABEL}'") == func.any(rows.labels)).label("flagged"),
        func.char_length(rows.content).label("length"),
        func.left(rows.content, literal_column(str(HEAD))).label("head"),
        func.right(rows.content, literal_column("4")).label("tail"),
        (rows.metadata_.op("->>")(literal_column("'role'")) if memories else rows.speaker).label("role"),
    ]


def _text_of_first(rows: Any, place: Any) -> Any:
    return case(
        (place <= literal_column(str(FIRST)), func.left(rows.content, literal_column(str(MAX_TEXT_CHARACTERS))))
    )


def _tokens(rows: Any, kind: ItemKind, with_tokens: bool) -> Any:
    if not with_tokens:
        return literal_column("NULL::bytea")
    # Each is looked up separately (OFFSET 0 ensures that): before the table was analysed, the planner preferred a full
    # scan.
    tokens: Any = (
        select(EmbeddingTokens.tokens)
        .where(
            EmbeddingTokens.kind == literal_column(f"'{kind.value}'"),
            EmbeddingTokens.id == rows.id,
            EmbeddingTokens.model == bindparam("model", type_=Text),
            EmbeddingTokens.text_hash == rows.hash,
        )
        .offset(literal_column("0"))
        .correlate(rows)
        .scalar_subquery()
    )
    return tokens


@cache
def _statement(owner: bool, default: Default, corpus: Corpus, with_tokens: bool, all_rows: bool) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    row_sources = (
        _candidate_select(caller, corpus, with_tokens, all_rows),
        _neighbour_select(caller, corpus, with_tokens),
    )
    both = union_all(*(select(*one.subquery().c) for one in row_sources)).cte("found").prefix_with("MATERIALIZED")
    *columns, tokens = both.c
    # One value with all tokens: PostgreSQL sends small ones in pieces, and the client wakes for each of them. The
    # aggregates see the rows in the order in which they are returned.
    size = func.int4send(func.coalesce(func.length(tokens), literal_column("0")))
    empty: Any = literal_column("''::bytea")
    packed_tokens = [func.string_agg(size, empty), func.coalesce(func.string_agg(tokens, empty), empty)]
    no_columns: list[Any] = [literal_column("NULL")] * len(columns)
    no_tokens: Any = literal_column("NULL::bytea")
    parts = select(*columns, no_tokens, no_tokens), select(*no_columns, *packed_tokens).select_from(both)
    return CompiledStatement(union_all(*parts), plain=True, binary=True)


def _ids(name: str) -> Any:
    return (
        func.unnest(cast(bindparam(name, type_=Text), ARRAY(Uuid)))
        .table_valued(column("id", Uuid), with_ordinality="place", name=name)
        .render_derived()
    )


def _candidate_select(caller: Caller, corpus: Corpus, with_tokens: bool, all_rows: bool) -> Select[Any]:
    rows, ids = corpus.rows, _ids("candidates")
    mine = rows.user_id == bindparam("caller_user_id", type_=Uuid()) if all_rows else readable_by(caller, rows)
    tokens = case((ids.c.place <= literal_column(str(MAX_COMPARED)), _tokens(rows, corpus.kind, with_tokens)))
    return (
        select(
            literal_column("NULL::uuid").label("id"),
            ids.c.place,
            literal_column("NULL::bigint").label("step"),
            *_columns(rows, corpus.kind),
            _text_of_first(rows, ids.c.place).label("said"),
            tokens.label("tokens"),
        )
        .select_from(ids)
        .join(rows, rows.id == ids.c.id)
        .where(mine)
    )


def _neighbour_select(caller: Caller, corpus: Corpus, with_tokens: bool) -> Select[Any]:
    """Selects the neighbours of the ids bound as `hits`, with the place of the hit and the step from it. The caller may
    read all."""
    rows, hits = corpus.rows, _ids("hits")
    sides = (_thread_side(caller, corpus, with_tokens, backwards) for backwards in (True, False))
    neighbours = union_all(*(select(*one.subquery().c) for one in sides)).lateral("near")
    id_, step, *own = neighbours.c
    return (
        select(id_, hits.c.place, step, *own)
        .select_from(hits)
        .join(rows, rows.id == hits.c.id)
        .join(neighbours, true())
        .where(rows.thread_id.is_not(None), readable_by(caller, rows))
    )


def _thread_side(caller: Caller, corpus: Corpus, with_tokens: bool, backwards: bool) -> Select[Any]:
    """Selects the texts just before or just after one in its thread, with their steps from it."""
    rows: Any = corpus.rows
    other: Any = aliased(rows)
    here, there = tuple_(rows.created_at, rows.id), tuple_(other.created_at, other.id)
    order: list[Any] = [other.created_at, other.id]
    if backwards:
        order = [key.desc() for key in order]
    step = func.row_number().over(order_by=order)
    return (
        select(
            other.id,
            (-step if backwards else step).label("step"),
            *_columns(other, corpus.kind),
            literal_column("NULL::text").label("said"),
            _tokens(other, corpus.kind, with_tokens).label("tokens"),
        )
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

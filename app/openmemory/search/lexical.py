"""Lexical retrieval: finds memories that contain the words of a query by BM25, then those that contain parts of its
words."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from functools import partial as partial_of
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    DateTime,
    Float,
    Integer,
    Select,
    Subquery,
    Text,
    Uuid,
    bindparam,
    column,
    literal_column,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.index.sync.entries import array_of
from openmemory.memories.models import Memory
from openmemory.search import acl_sql
from openmemory.search.bm25 import SLOTS, FilterSet, LexicalFilter, bm25, partial
from openmemory.search.query_text import lexemes, quoted

PARTIAL = 0.5
"""The score of the best partial match relative to the last match of a whole word."""


class Thread(NamedTuple):
    """A thread of memories. Threads with the same id in two namespaces are different."""

    namespace: str
    id: str


class LexicalHit(NamedTuple):
    """A memory found by its words. `score` is BM25 (> 0, unbounded).

    `terms` are the lexemes or parts that matched, if requested. `partial` hits contain no whole word. `together` is the
    score of all memories of its `thread` as if they were one. `coverage` is the score as a share of what a memory would
    get that contains each word of the query without end.
    """

    id: UUID
    score: float
    terms: tuple[str, ...] = ()
    partial: bool = False
    thread: Thread | None = None
    together: float = 0.0
    coverage: float = 0.0


async def search(
    connection: Tx,
    query: str,
    where: LexicalFilter,
    limit: int,
    *,
    enough: int | None = None,
    readable: ColumnElement[bool] | None = None,
    parameters: Mapping[str, Any] | None = None,
    traced: bool = False,
    kept: bool = True,
) -> list[LexicalHit]:
    """The active, unexpired memories that match the query, best first, at most `limit`.

    `readable` is a further predicate over `Memory`, with its values in `parameters`. It is evaluated from the best
    candidate on until `limit` have passed. If fewer than `enough` (by default `limit`) contain a whole word of the
    query, memories follow that contain a part of a word. Text in double quotes is searched for as a phrase, and
    memories that contain it come first. `traced` returns the terms that matched. `kept` caches the statement with this
    predicate for reuse.
    """
    query = query.replace("\x00", " ")
    if not re.search(r"\w", query) or limit < 1 or where.nothing:
        return []
    phrases = quoted(query)
    binds = _binds(where) | {"query": query, "limit": limit, "phrases": phrases} | dict(parameters or {})
    shape, best = FilterSet.of(where), _best if kept else _unkept
    # Fetch as many of the best as requested, unless another condition may still rank others above them.
    sql = bm25(shape, _slots(lexemes(query)), quoted=bool(phrases), every=bool(phrases) or readable is not None)
    rows = await best(sql, _MATCHED if traced else None, readable).rows(connection, binds)
    hits = [_hit(row, traced) for row in rows]
    if len(hits) >= (limit if enough is None else enough) or not (needles := _needles(query)):
        return hits
    known = {"needles": needles, "found": [hit.id for hit in hits]}
    statement = best(partial(shape), _PARTS if traced else None, readable)
    rows = await statement.rows(connection, binds | known)
    # Parts rank after whole words, regardless of the scales of the two scores.
    scale = PARTIAL * hits[-1].score / rows[0].score if hits and rows else PARTIAL
    parts = [_hit(row, traced)._replace(score=row.score * scale, partial=True) for row in rows]
    return hits + parts[: limit - len(hits)]


def _slots(many: int) -> int:
    return next((slots for slots in SLOTS if many <= slots), SLOTS[-1])


def _hit(row: Any, traced: bool) -> LexicalHit:
    id_, score, namespace, thread, together, total, *terms = row
    terms = tuple(terms[0]) if traced else ()
    coverage = min(score / total, 1.0) if total else 0.0
    if thread is None:
        return LexicalHit(id_, score, terms, coverage=coverage)
    return LexicalHit(id_, score, terms, False, Thread(namespace, thread), together, coverage)


_MATCHED = literal_column(
    "array(select w.lexeme from unnest(memories.words) w where w.lexeme = any(candidates.terms) order by 1)",
    ARRAY(Text),
)
_PARTS = literal_column("candidates.terms", ARRAY(Text))


_TYPES: dict[str, Any] = {
    "in_user": Uuid(),
    "query": Text(),
    "limit": Integer(),
    "in_namespaces": ARRAY(Text),
    "in_thread": Text(),
    "in_kinds": ARRAY(Text),
    "in_apps": ARRAY(Uuid),
    "in_since": DateTime(timezone=True),
    "in_until": DateTime(timezone=True),
    "needles": ARRAY(Text),
    "found": ARRAY(Uuid),
    "phrases": ARRAY(Text),
}


@lru_cache(maxsize=256)
def _candidates(sql: str) -> Subquery:
    """The statement's rows as a FROM clause, with the types of all its parameters."""
    typed = bound(sql, _TYPES).columns(
        column("id", Uuid()),
        column("score", Float()),
        column("terms", ARRAY(Text)),
        column("namespace", Text()),
        column("thread_id", Text()),
        column("together", Float()),
        column("total", Float()),
    )
    return typed.subquery("candidates")


@lru_cache(maxsize=256)
def _best(
    sql: str, terms: ColumnElement[Any] | None, readable: ColumnElement[bool] | None, kept: bool = True
) -> CompiledStatement:
    """The first `limit` candidates that `readable` allows, read one by one in the order of their score."""
    candidates = _candidates(sql)
    thread = candidates.c.namespace, candidates.c.thread_id, candidates.c.together, candidates.c.total
    found: Select[Any] = select(candidates.c.id, candidates.c.score, *thread)
    if terms is not None or readable is not None:
        row = select(literal_column("1") if terms is None else terms.label("terms"))
        row = row.where(Memory.id == candidates.c.id)
        if readable is not None:
            row = row.where(readable)
        # OFFSET 0 keeps the planner from joining all candidates before it sorts.
        one = row.offset(literal_column("0")).correlate(candidates).lateral("one")
        found = found.select_from(candidates.join(one, true()))
        if terms is not None:
            found = found.add_columns(one.c.terms)
    best = found.order_by(candidates.c.score.desc(), candidates.c.id)
    return CompiledStatement(best.limit(bindparam("limit", type_=Integer())), kept=kept)


_unkept = partial_of(_best.__wrapped__, kept=False)


def _binds(where: LexicalFilter) -> dict[str, Any]:
    return {
        "in_user": where.user,
        "in_namespaces": list(where.namespaces),
        "in_thread": where.thread,
        "in_kinds": list(where.kinds),
        "in_apps": list(where.apps),
        "in_since": where.since,
        "in_until": where.until,
        "in_ids": array_of(where.ids or ()),
        **acl_sql.binds(where.rules),
    }


def _needles(query: str) -> list[str]:
    """The words of the query to find inside other words, longest first, and the query itself if it is short."""
    words = {word.strip("-./'_").lower() for word in re.findall(r"[\w\-./']+", query)}
    worth = {word for word in words if len(word) > 2 or not word.isascii()}
    whole = query.strip().lower()
    if " " in whole and len(whole) <= 40:
        worth.add(whole)
    return sorted(worth, key=lambda word: (-len(word), word))[:16]

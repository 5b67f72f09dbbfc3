"""Lexical retrieval: the memories that hold the words of a query, by BM25, then those that hold parts of its words."""

from __future__ import annotations

import re
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

from app.database import Tx
from app.index.entries import array_of
from app.memories.models import Memory
from app.prepared import Prepared, bound
from app.search import ruled
from app.search.bm25 import SLOTS, LexicalFilter, Shape, bm25, partial

PARTIAL = 0.5
"""What the best match of a part of a word, or of a misspelt one, counts against the last match of a whole word."""

_STOP_WORDS = """
a about after all am an and any are as at be been before but by can did do does for from had has have he her him his
how i if in is it its me more my no not of on or our out over she should so some than that the their them then there
these they this to under up was we were what when where which who why will with you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words of which PostgreSQL makes no lexeme, those that questions are full of: they need no slot of a statement."""


class Thread(NamedTuple):
    """A thread that holds a memory. Those of the same name in two namespaces are two."""

    namespace: str
    id: str


class LexicalHit(NamedTuple):
    """A memory found by its words. `score` is BM25 (> 0, unbounded).

    `terms` are the lexemes or parts that matched, where they were asked for. `partial` hits hold no whole word.
    `together` is what all the words say that the memories of its `thread` hold, as if these were one.
    """

    id: UUID
    score: float
    terms: tuple[str, ...] = ()
    partial: bool = False
    thread: Thread | None = None
    together: float = 0.0


async def search(
    connection: Tx,
    query: str,
    where: LexicalFilter,
    limit: int,
    *,
    enough: int | None = None,
    readable: ColumnElement[bool] | None = None,
    parameters: dict[str, Any] | None = None,
    traced: bool = False,
    kept: bool = True,
) -> list[LexicalHit]:
    """The active, unexpired memories that say what the query says, best first, at most `limit`.

    `readable` is a further predicate over `Memory`, and `parameters` what it binds. It is evaluated from the best
    candidate on until `limit` have passed. When fewer than `enough` (else `limit`) hold a whole word of the query,
    memories follow that hold a part of a word, or a word spelt much like one. `traced` names the terms that matched.
    `kept`: a statement with this predicate is kept for the next time.
    """
    query = query.replace("\x00", " ")
    words = re.findall(r"\w+", query)
    if not words or limit < 1 or where.nothing:
        return []
    binds = _binds(where) | {"query": query, "limit": limit} | (parameters or {})
    shape, best = Shape.of(where), _best if kept else _unkept
    spoken = sum(word.lower() not in STOP_WORDS for word in words)
    slots = next((slots for slots in SLOTS if spoken <= slots), SLOTS[-1])
    statement = best(bm25(shape, slots), _MATCHED if traced else None, readable)
    hits = [_hit(row, traced) for row in await statement.rows(connection, binds)]
    if len(hits) >= (limit if enough is None else enough) or not (needles := _needles(query)):
        return hits
    known = {"needles": needles, "found": [hit.id for hit in hits]}
    statement = best(partial(shape), _PARTS if traced else None, readable)
    rows = await statement.rows(connection, binds | known)
    # Parts rank after whole words, whatever the scales of the two scores.
    scale = PARTIAL * hits[-1].score / rows[0].score if hits and rows else PARTIAL
    parts = [_hit(row, traced)._replace(score=row.score * scale, partial=True) for row in rows]
    return hits + parts[: limit - len(hits)]


def _hit(row: Any, traced: bool) -> LexicalHit:
    id_, score, namespace, thread, together, missing, *terms = row
    terms = tuple(terms[0]) if traced else ()
    if thread is None:
        return LexicalHit(id_, score, terms)
    return LexicalHit(id_, score, terms, thread=Thread(namespace, thread), together=together)


_MATCHED = literal_column(
    "array(select w.lexeme from unnest(memories.words) w where w.lexeme = any(candidates.terms) order by 1)",
    ARRAY(Text),
)
_PARTS = literal_column("candidates.terms", ARRAY(Text))


@lru_cache(maxsize=256)
def _candidates(sql: str) -> Subquery:
    """The statement's rows as a FROM clause, with the types of all it binds."""
    types: dict[str, Any] = {
        "in_user": Uuid(),
        "query": Text(),
        "limit": Integer(),
        "in_namespaces": ARRAY(Text),
        "in_thread": Text(),
        "in_kinds": ARRAY(Text),
        "in_apps": ARRAY(Uuid),
        "in_since": DateTime(timezone=True),
        "in_until": DateTime(timezone=True),
        "in_excluded": ARRAY(Uuid),
        "needles": ARRAY(Text),
        "found": ARRAY(Uuid),
        "spelt": ARRAY(Text),
        "phrases": ARRAY(Text),
    }
    typed = bound(sql, types).columns(
        column("id", Uuid()),
        column("score", Float()),
        column("terms", ARRAY(Text)),
        column("namespace", Text()),
        column("thread_id", Text()),
        column("together", Float()),
        column("missing", ARRAY(Text)),
    )
    return typed.subquery("candidates")


@lru_cache(maxsize=256)
def _best(
    sql: str, terms: ColumnElement[Any] | None, readable: ColumnElement[bool] | None, kept: bool = True
) -> Prepared:
    """The first `limit` candidates that `readable` lets through, read one by one in the order of their score."""
    candidates = _candidates(sql)
    thread = candidates.c.namespace, candidates.c.thread_id, candidates.c.together, candidates.c.missing
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
    return Prepared(best.limit(bindparam("limit", type_=Integer())), kept=kept)


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
        "in_excluded": list(where.excluded),
        "in_ids": array_of(where.ids or ()),
        **ruled.binds(where.rules),
    }


def _needles(query: str) -> list[str]:
    """Words of the query worth finding inside other words, longest first, and the query itself if it is short."""
    words = {word.strip("-./'_").lower() for word in re.findall(r"[\w\-./']+", query)}
    worth = {word for word in words if len(word) > 2 or (len(word) == 2 and not word.isascii())}
    whole = query.strip().lower()
    if " " in whole and len(whole) <= 40:
        worth.add(whole)
    return sorted(worth, key=lambda word: (-len(word), word))[:16]


__all__ = ["LexicalFilter", "LexicalHit", "search"]

"""Lexical retrieval from PostgreSQL: BM25, quoted phrases, and parts of words.

The index answers with the same scores and much faster (`index.bm25`). PostgreSQL answers if the index is away or
behind, or cannot apply a filter, and for what it does not contain yet.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
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
from openmemory.index.bm25 import K1, MEAN_LENGTH, B
from openmemory.index.models import ItemKind
from openmemory.index.port import Hit
from openmemory.search.lexical_filter import KEYS, FilterSet, LexicalFilter, words_of
from openmemory.search.query_analysis import QueryAnalysis, analysed
from openmemory.search.query_text import as_written, quoted

MOST = 2_000
"""The number of memories that BM25 is computed for: the newest that contain one of the rarest words. Words are added,
the rarest first, until they select so many memories."""

SIGNS_READ = 10_000
"""The number of newest memories in which signs are looked for."""

PARTIAL = 0.5
"""The score of the best partial match relative to the last match of a whole word."""


PART_WEIGHT = 6.5
"""The weight of a part of a word that one memory contains (`partial_matches.sql`)."""


class LexicalHit(NamedTuple):
    """A memory found by its words. `score` is BM25 (> 0, unbounded).

    `partial` hits contain no whole word. `coverage` is the score as a share of what a memory would get that contains
    each word of the query without end.
    """

    id: UUID
    score: float
    partial: bool = False
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class LexicalSearch:
    """A search for active, unexpired memories by the words of a query: the best `limit`.

    If fewer than `enough` contain a whole word of the query, memories follow that contain a part of a word. Text in
    double quotes is searched for as a phrase, and memories that contain it come first. `readable` is a further
    predicate over the rows, with its values in `parameters`. `kept` caches the statement with this predicate for reuse.
    """

    query: str
    analysis: QueryAnalysis
    where: LexicalFilter
    limit: int
    enough: int
    readable: ColumnElement[bool] | None = None
    parameters: Mapping[str, Any] = field(default_factory=dict)
    kept: bool = True

    async def hits(self, tx: Tx) -> list[LexicalHit]:
        """The hits, best first, from PostgreSQL alone."""
        if self.nothing:
            return []
        return await self.completed(tx, await self.by_words(tx))

    async def by_words(self, tx: Tx, ids: tuple[UUID, ...] | None = None) -> list[LexicalHit]:
        """The memories that contain a word of the query, or those of them that are listed."""
        if not self.analysis.lexemes:
            return []
        if ids is None:
            return await self._scored(tx, self.where)
        among = ids if self.where.ids is None else set(ids).intersection(self.where.ids)
        return await self._scored(tx, replace(self.where, ids=tuple(among))) if among else []

    async def phrases(self, tx: Tx) -> list[LexicalHit]:
        """The memories that contain one of the phrases in double quotes, or if there are none, the words one after the
        other, or the only word."""
        if self.nothing:
            return []
        phrase = self if quoted(self.query) else replace(self, query=f'"{self.query}"')
        return await (phrase._scored(tx, self.where, "phrases") if quoted(phrase.query) else self.by_words(tx))

    async def signs(self, tx: Tx) -> list[LexicalHit]:
        """The memories that contain a query of signs, such as `=>` or an emoji, newest first. Only the `SIGNS_READ`
        newest memories are read: no index contains signs."""
        said = as_written(self.query)
        if self.limit < 1 or self.where.nothing or not said:
            return []
        found = await self._rows(tx, _signs(FilterSet.of(self.where)), self.where, {"query": said})
        return [LexicalHit(id_, score, partial=True) for id_, score in found]

    def is_complete(self, hits: Sequence[LexicalHit]) -> bool:
        """Returns True if no phrases and no parts of words are to be looked for."""
        return self.nothing or ((len(hits) >= self.enough or not self.splits) and not quoted(self.query))

    async def completed(self, tx: Tx, hits: list[LexicalHit]) -> list[LexicalHit]:
        """Adds to the memories that contain words of the query those that contain its phrases or parts of words."""
        if quoted(self.query):
            hits = best_first([*hits, *await self._scored(tx, self.where, "phrases")])[: self.limit]
        if len(hits) >= self.enough or not self.splits or not (needles := _needles(self.query)):
            return hits
        known = {"query": self.query, "needles": needles, "found": [hit.id for hit in hits]}
        rows = await self._rows(tx, _partial(FilterSet.of(self.where)), self.where, known)
        # Parts rank after whole words, regardless of the scales of the two scores.
        scale = PARTIAL * hits[-1].score / rows[0].score if hits and rows else PARTIAL
        most = len(needles) * PART_WEIGHT
        parts = [LexicalHit(id_, score * scale, True, PARTIAL * min(score / most, 1.0)) for id_, score in rows]
        return hits + parts[: self.limit - len(hits)]

    def of_index(self, hits: Iterable[Hit]) -> list[LexicalHit]:
        """The hits that the index found by the vector of the query's words."""
        total = self.analysis.total
        return [LexicalHit(id_, score, coverage=min(score / total, 1.0)) for id_, score in hits]

    @property
    def splits(self) -> bool:
        """Returns True if parts of words are looked for, which only memories have an index for."""
        return self.where.kind is ItemKind.MEMORY

    @property
    def nothing(self) -> bool:
        """Returns True if the query has no word, or no memory can match."""
        return self.limit < 1 or self.where.nothing or not re.search(r"\w", self.query)

    async def _scored(self, tx: Tx, where: LexicalFilter, candidates: str = "holders") -> list[LexicalHit]:
        lexemes = self.analysis.lexemes
        known = {
            "lexemes": [lexeme.text for lexeme in lexemes],
            "weights": [lexeme.idf for lexeme in lexemes],
            "rare": self._rarest(),
            "phrases": quoted(self.query),
        }
        return self.of_index(await self._rows(tx, _bm25(FilterSet.of(where), candidates), where, known))

    def _rarest(self) -> list[str]:
        """The words that select memories: those that select `MOST` together, at least one."""
        rarest, selected = list[str](), 0.0
        for lexeme in self.analysis.lexemes:
            selected += lexeme.holding
            if rarest and selected > MOST:
                break
            rarest.append(lexeme.text)
        return rarest

    async def _rows(self, tx: Tx, sql: str, where: LexicalFilter, known: Mapping[str, Any]) -> list[Any]:
        binds = where.binds | {"limit": self.limit, **known, **self.parameters}
        return await (_best if self.kept else _unkept)(sql, self.readable, where.kind).rows(tx, binds)


async def search(tx: Tx, query: str, where: LexicalFilter, limit: int, enough: int | None = None) -> list[LexicalHit]:
    """The best `limit` memories by words, from PostgreSQL alone. See `LexicalSearch`."""
    analysis = await analysed(tx, query, where)
    return await LexicalSearch(query, analysis, where, limit, limit if enough is None else enough).hits(tx)


def best_first(hits: Iterable[LexicalHit]) -> list[LexicalHit]:
    """Each memory once, with its best score. Partial matches stay behind."""
    best: dict[UUID, LexicalHit] = {}
    for hit in sorted(hits, key=lambda hit: (hit.partial, -hit.score)):
        best.setdefault(hit.id, hit)
    return list(best.values())


@lru_cache(maxsize=256)
def _bm25(shape: FilterSet, candidates: str) -> str:
    """The statement of BM25 for `holders` of words or of `phrases`. All listed memories are candidates."""
    holding = f"{KEYS} && array(select hashtextextended(l, seed) from unnest(:rare) l, unnest({shape.seeds}) seed)"  # noqa: S608 - only names
    return shape.statement(
        "bm25",
        candidates=shape.statement(candidates, holding="true" if shape.listed else holding, most=MOST),
        k1=f"{K1}::float8",
        k1_and_1=f"{K1 + 1}::float8",
        b=f"{B}::float8",
        rest_of_b=f"{1 - B}::float8",
        mean_length=MEAN_LENGTH,
    )


@lru_cache(maxsize=256)
def _partial(shape: FilterSet) -> str:
    """The statement for memories that contain a part of a word."""
    return shape.statement("partial_matches", needle_words=words_of("needle"))


@lru_cache(maxsize=256)
def _signs(shape: FilterSet) -> str:
    """The statement for memories that contain signs."""
    return shape.statement("signs", signs_read=SIGNS_READ)


_TYPES: dict[str, Any] = {
    "in_user": Uuid(),
    "limit": Integer(),
    "in_namespaces": ARRAY(Text),
    "in_thread": Text(),
    "in_kinds": ARRAY(Text),
    "in_apps": ARRAY(Uuid),
    "in_since": DateTime(timezone=True),
    "in_until": DateTime(timezone=True),
    "lexemes": ARRAY(Text),
    "weights": ARRAY(Float),
    "rare": ARRAY(Text),
    "phrases": ARRAY(Text),
    "query": Text(),
    "needles": ARRAY(Text),
    "found": ARRAY(Uuid),
}


@lru_cache(maxsize=256)
def _candidates(sql: str) -> Subquery:
    """The statement's rows as a FROM clause, with the types of all its parameters."""
    return bound(sql, _TYPES).columns(column("id", Uuid()), column("score", Float())).subquery("candidates")


@lru_cache(maxsize=256)
def _best(sql: str, readable: ColumnElement[bool] | None, kind: ItemKind, kept: bool = True) -> CompiledStatement:
    """The first `limit` candidates that `readable` allows, read one by one in the order of their score."""
    candidates = _candidates(sql)
    found: Select[Any] = select(candidates.c.id, candidates.c.score)
    if readable is not None:
        here: Any = literal_column(f"{kind.table}.id", Uuid())
        row: Select[Any] = select(literal_column("1")).where(here == candidates.c.id, readable)
        # OFFSET 0 keeps the planner from joining all candidates before it sorts.
        one = row.offset(literal_column("0")).correlate(candidates).lateral("one")
        found = found.select_from(candidates.join(one, true()))
    best = found.order_by(candidates.c.score.desc(), candidates.c.id)
    return CompiledStatement(best.limit(bindparam("limit", type_=Integer())), kept=kept)


_unkept = partial_of(_best.__wrapped__, kept=False)


_WORD = re.compile(
    r"[\w\-./'\u0300-\u036f\u0591-\u05c7\u0610-\u061a\u064b-\u0670\u0900-\u0dff\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u200c\u200d]+"
)
"""A word with the vowels and tones that stand above, below or between the letters of many scripts."""


def _needles(query: str) -> list[str]:
    """The words of the query to find inside other words, longest first, and the query itself if it is short."""
    words = {word.strip("-./'_").lower() for word in _WORD.findall(query)}
    worth = {word for word in words if len(word) > 2 or not word.isascii()}
    whole = query.strip().lower()
    if " " in whole and len(whole) <= 40:
        worth.add(whole)
    return sorted(worth, key=lambda word: (-len(word), word))[:16]

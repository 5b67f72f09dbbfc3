"""Lexical retrieval from PostgreSQL: BM25, quoted phrases, and parts of words.

The index answers with the same scores and much faster (`index.bm25`). PostgreSQL answers if the index is away or
behind, or cannot apply a filter, and for what it does not contain yet.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ColumnElement,
    Float,
    Integer,
    Select,
    Text,
    Uuid,
    and_,
    bindparam,
    cast,
    column,
    func,
    literal_column,
    or_,
    select,
    true,
)
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import aliased

from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.index.bm25 import K1, MEAN_LENGTH, B
from openmemory.index.models import ItemKind
from openmemory.index.port import Hit
from openmemory.memories.listing.criteria import like_pattern
from openmemory.memories.models import ACTIVE
from openmemory.search.candidates.query_analysis import QueryAnalysis, analysed
from openmemory.search.corpus import CORPORA
from openmemory.search.query.text import STOP_WORDS, bare_words, literal_text, quoted
from openmemory.search.sql.filter import Shape, by_shape, is_usual, predicate
from openmemory.search.sql.lexical_filter import LexicalFilter, ScopeSql, keys_of

MOST = 2_000
"""The number of rows that BM25 is computed for: the newest that contain one of the rarest words. Words are added, the
rarest first, until they select so many rows."""

NEWEST = 10_000
"""The number of newest rows that are scanned for signs and single letters: no index contains them."""

_INDEXED = re.compile(r"[^\W_]{3}")
"""A text that the index of trigrams finds contains this."""

PARTS, LONGEST = 4, 60
"""The number of words that are searched for inside others, the longest of the query, and the number of characters of a
query that is searched for as a whole."""

MANY = 200
"""The number of rows that are read for each of these."""

PARTIAL = 0.5
"""The coverage of a row that contains all words of the query as parts of others."""


class LexicalHit(NamedTuple):
    """A row found by its words. `score` is BM25 (> 0, unbounded).

    `partial` hits contain no whole word. `coverage` is the score as a share of what a row would get that contains each
    word of the query without end.
    """

    id: UUID
    score: float
    partial: bool = False
    coverage: float = 0.0


@dataclass(frozen=True, slots=True)
class LexicalSearch:
    """A search for active, unexpired rows by the words of a query: the best `limit`.

    If fewer than `enough` contain a whole word of the query, rows follow that contain its words inside others. Text in
    double quotes is searched for as a phrase, and rows that contain it come first.
    """

    query: str
    analysis: QueryAnalysis
    where: LexicalFilter
    limit: int
    enough: int

    async def hits(self, tx: Tx) -> list[LexicalHit]:
        """The hits, best first, from PostgreSQL alone."""
        if self.nothing:
            return []
        return await self.completed(tx, await self.by_words(tx))

    async def by_words(self, tx: Tx, ids: tuple[UUID, ...] | None = None) -> list[LexicalHit]:
        """The rows that contain a word of the query, or those of them that are listed."""
        where = self.where
        if ids is not None:
            where = replace(where, ids=ids if where.ids is None else tuple(set(ids).intersection(where.ids)))
        if not self.analysis.lexemes or where.nothing:
            return []
        return await self._bm25_hits(tx, where)

    async def phrases(self, tx: Tx) -> list[LexicalHit]:
        """The rows that contain one of the phrases in double quotes, or if there are none, the words one after the
        other, or the only word."""
        if self.nothing:
            return []
        phrases = quoted(self.query) or quoted(f'"{self.query}"')
        return await (self._with_phrases(tx, phrases) if phrases else self.by_words(tx))

    async def literal_hits(self, tx: Tx) -> list[LexicalHit]:
        """The rows that contain the query as it is written. If no index finds it, such as `=>` or an emoji, only the
        `NEWEST` rows are read, and newer ones come first."""
        text = literal_text(self.query)
        if self.limit < 1 or self.where.nothing or not text:
            return []
        if self.splits and _INDEXED.search(text):
            return await self._containing(tx, {text: 1.0})
        rows = await self._rows(tx, _newest, {"pattern": like_pattern(text)})
        return [LexicalHit(id_, 1 / (1 + place / 1_000), True, PARTIAL) for place, (id_,) in enumerate(rows, 1)]

    def is_complete(self, hits: Sequence[LexicalHit]) -> bool:
        """Returns True if no phrases and no parts of words are to be searched for."""
        return self.nothing or ((len(hits) >= self.enough or not self.splits) and not quoted(self.query))

    async def completed(self, tx: Tx, hits: list[LexicalHit]) -> list[LexicalHit]:
        """Adds to the rows that contain words of the query those that contain its phrases or parts of words."""
        if phrases := quoted(self.query):
            hits = best_first([*hits, *await self._with_phrases(tx, phrases)])[: self.limit]
        if len(hits) >= self.enough or not self.splits:
            return hits
        hit_ids = {hit.id for hit in hits}
        parts = [hit for hit in await self._parts(tx, list(hit_ids)) if hit.id not in hit_ids]
        # Parts rank after whole words, regardless of the scales of the two scores.
        scale = PARTIAL * (hits[-1].score if hits else 1.0)
        return hits + [hit._replace(score=scale * hit.score) for hit in parts[: self.limit - len(hits)]]

    def of_index(self, hits: Iterable[Hit]) -> list[LexicalHit]:
        """The hits that the index found by the vector of the query's words."""
        total = self.analysis.total
        return [LexicalHit(id_, score, coverage=min(score / total, 1.0)) for id_, score in hits]

    @property
    def splits(self) -> bool:
        """Returns True if parts of words are searched for, which only memories have an index for."""
        return self.where.kind is ItemKind.MEMORY

    @property
    def nothing(self) -> bool:
        """Returns True if the query has no word, or no row can match."""
        return self.limit < 1 or self.where.nothing or not re.search(r"\w", self.query)

    async def _with_phrases(self, tx: Tx, phrases: Iterable[str]) -> list[LexicalHit]:
        """The rows that contain a phrase. Each phrase counts as much as all words without end."""
        scores: dict[UUID, float] = {}
        total = self.analysis.total
        for phrase in phrases if total else ():
            for hit in await self._bm25_hits(tx, self.where, phrase):
                scores[hit.id] = total + scores.get(hit.id, hit.score)
        return best_first(self.of_index(Hit(id_, score) for id_, score in scores.items()))[: self.limit]

    async def _bm25_hits(self, tx: Tx, where: LexicalFilter, phrase: str | None = None) -> list[LexicalHit]:
        lexemes = self.analysis.lexemes
        values = {
            "lexemes": [lexeme.text for lexeme in lexemes],
            "weights": [lexeme.idf for lexeme in lexemes],
            "rare": self._rarest(),
            "phrase": phrase,
            "limit": self.limit,
        }
        statement = _bm25(where.scope, where.ids is not None, phrase is not None, where.shape)
        return self.of_index(await statement.rows(tx, where.binds | values))

    async def _rows(self, tx: Tx, statement: Callable[..., CompiledStatement], values: Mapping[str, Any]) -> list[Any]:
        where = self.where
        one = statement(where.scope, where.ids is not None, where.shape)
        return await one.rows(tx, {**where.binds, **values, "limit": self.limit})

    def _rarest(self) -> list[str]:
        """The words that select rows: those that select `MOST` together, at least one."""
        rarest, row_count = list[str](), 0.0
        for lexeme in self.analysis.lexemes:
            row_count += lexeme.document_frequency
            if rarest and row_count > MOST:
                break
            rarest.append(lexeme.text)
        return rarest

    async def _parts(self, tx: Tx, excluded_ids: list[UUID]) -> list[LexicalHit]:
        """The rows that contain the query or its longest words, also inside others, by how much of it they contain."""
        whole = literal_text(self.query).lower()
        if not _INDEXED.search(whole):
            return await self.literal_hits(tx)
        words = {word.lower() for word in bare_words(self.query)} - STOP_WORDS
        longest = sorted(filter(_INDEXED.search, words), key=lambda word: (-len(word), word))[:PARTS]
        letters = sum(map(len, longest))
        shares = {word: len(word) / letters for word in longest}
        return await self._containing(tx, shares | ({whole: 1.0} if len(whole) <= LONGEST else {}), excluded_ids)

    async def _containing(
        self, tx: Tx, shares: Mapping[str, float], excluded_ids: Sequence[UUID] = ()
    ) -> list[LexicalHit]:
        """The rows that contain one of these texts, by the sum of the shares of those that they contain."""
        values = {
            "patterns": list(map(like_pattern, shares)), "shares": list(shares.values()), "known": list(excluded_ids),
        }  # fmt: skip
        rows = await self._rows(tx, _containing, values)
        return [LexicalHit(id_, score, True, PARTIAL * min(score, 1.0)) for id_, score in rows]


async def search(tx: Tx, query: str, where: LexicalFilter, limit: int, enough: int | None = None) -> list[LexicalHit]:
    """The best `limit` rows by words, from PostgreSQL alone. See `LexicalSearch`."""
    analysis = await analysed(tx, query, where)
    return await LexicalSearch(query, analysis, where, limit, limit if enough is None else enough).hits(tx)


def best_first(hits: Iterable[LexicalHit]) -> list[LexicalHit]:
    """Returns the best hit of each row, by score. Partial matches come last; equal scores are in the order of ids."""
    best: dict[UUID, LexicalHit] = {}
    for hit in sorted(hits, key=lambda hit: (hit.partial, -hit.score, hit.id)):
        best.setdefault(hit.id, hit)
    return list(best.values())


_TYPES: dict[str, Any] = {
    "in_user": Uuid(),
    "in_namespaces": ARRAY(Text),
    "lexemes": ARRAY(Text),
    "weights": ARRAY(Float),
    "rare": ARRAY(Text),
    "patterns": ARRAY(Text),
    "shares": ARRAY(Float),
}
_APART: Any = literal_column("0")
"""An OFFSET that keeps the planner from taking a subquery apart."""

_PHRASE = "(select lexical_phrase(language::regconfig, :phrase) from lexicon)"
_IN_PHRASE = "lexicon, unnest(lexical_words(language::regconfig, :phrase)) w where w.positions is not null"

_BM25 = f"""
select c.id, sum(t.weight * w.times * {K1 + 1}::float8
  / (w.times + {K1}::float8 * ({1 - B}::float8 + {B}::float8 * c.word_count / {MEAN_LENGTH}))) as score
from chosen c cross join lateral (
  select lexeme, greatest(cardinality(positions), 1) as times from unnest(c.words) offset 0
) w join unnest(:lexemes, :weights) t(lexeme, weight) using (lexeme)
group by c.id
"""  # noqa: S608 - only constants are put in


@by_shape
def _bm25(scope: ScopeSql, listed: bool, phrase: bool, shape: Shape) -> CompiledStatement:
    """The rows that contain a word or a phrase, with their BM25 score. All listed rows are candidates."""
    table, name = CORPORA[scope.kind].rows, scope.kind.table
    if phrase:
        keys = f"array(select hashtextextended(w.lexeme, uuid_hash_extended(:in_user, 0)) from {_IN_PHRASE})"  # noqa: S608 - as above
        has_keys = bound(f"{keys_of(name)} @> {keys}", _TYPES)
    else:
        keys = f"array(select hashtextextended(l, seed) from unnest(:rare) l, unnest({scope.seeds}) seed)"  # noqa: S608 - as above
        has_keys = bound(f"{keys_of(name)} && {keys}", _TYPES)
    candidate_rows = select(table).where(table.state == ACTIVE, _is_listed(table) if listed else has_keys)
    rows: Any = aliased(table, candidate_rows.offset(_APART).subquery(name))
    matches = select(rows.id, rows.words, rows.word_count).where(_matches(rows, scope, shape), _is_allowed(scope))
    if phrase:
        matches = matches.where(bound(f"{_PHRASE} is not null and {name}.words @@ {_PHRASE}", _TYPES))
    newest = matches.order_by(rows.created_at.desc()).limit(literal_column(str(MOST))).cte("chosen")
    best = bound(_BM25, _TYPES).columns(column("id", Uuid()), column("score", Float())).subquery("best")
    hits: Select[Any] = select(best.c.id, best.c.score).add_cte(newest.prefix_with("MATERIALIZED"))
    return _first(hits.order_by(best.c.score.desc(), best.c.id), shape)


@by_shape
def _containing(scope: ScopeSql, listed: bool, shape: Shape) -> CompiledStatement:
    """The rows that match one of the patterns, with the sum of the shares of those that they match."""
    rows = CORPORA[scope.kind].rows
    part = bound("select * from unnest(:patterns, :shares) part(pattern, share)", _TYPES)
    parts = part.columns(column("pattern", Text()), column("share", Float())).subquery("parts")
    is_not_excluded = rows.id != func.all(bindparam("known", type_=ARRAY(Uuid)))
    some = select(rows.id).where(_matches(rows, scope, shape, listed=listed), _is_allowed(scope), is_not_excluded)
    some = some.where(rows.content.ilike(parts.c.pattern)).limit(literal_column(str(MANY))).offset(_APART)
    one = some.correlate(parts).lateral("one")
    score = func.sum(parts.c.share)
    hits = select(one.c.id, score).select_from(parts.join(one, true())).group_by(one.c.id)
    return _first(hits.order_by(score.desc(), one.c.id), shape)


@by_shape
def _newest(scope: ScopeSql, listed: bool, shape: Shape) -> CompiledStatement:
    """Those of the newest rows that match a pattern, newest first."""
    table = CORPORA[scope.kind].rows
    some = select(table).where(_matches(table, scope, shape, listed=listed)).order_by(table.created_at.desc())
    rows: Any = aliased(table, some.limit(literal_column(str(NEWEST))).subquery(scope.kind.table))
    hits = select(rows.id).where(rows.content.ilike(bindparam("pattern", type_=Text())), _is_allowed(scope))
    return _first(hits.order_by(rows.created_at.desc(), rows.id.desc()), shape)


def _matches(rows: Any, scope: ScopeSql, shape: Shape, *, listed: bool = False) -> ColumnElement[bool]:
    """The rows of the scope that match the filter and are in force now. `listed`: only those whose ids are given."""
    still = (or_(until.is_(None), until > func.now()) for until in (rows.expires_at, rows.valid_until))
    mine = bound(scope.condition(scope.kind.table), _TYPES)
    some = [_is_listed(rows)] if listed else []
    return and_(rows.state == ACTIVE, mine, *still, predicate(shape, rows), *some)


def _is_allowed(scope: ScopeSql) -> Any:
    """The rows that the rules allow."""
    return bound(scope.allowed(scope.kind.table), _TYPES)


def _is_listed(rows: Any) -> ColumnElement[bool]:
    condition: ColumnElement[bool] = rows.id == func.any(cast(bindparam("in_ids", type_=Text), ARRAY(Uuid)))
    return condition


def _first(hits: Select[Any], shape: Shape) -> CompiledStatement:
    return CompiledStatement(hits.limit(bindparam("limit", type_=Integer())), plain=True, prepare=is_usual(shape))

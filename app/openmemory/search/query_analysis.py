"""Analyses a query in one statement, before the model and the index get it.

Its lexemes get their weights in the searched memories, for BM25. And the model gets the query without the words that
are too common there. In a conversation, nearly every question names one of the speakers. The name does not separate the
memories, since half of them contain it, but it dominates the vector of a short question: such a question is near to
every greeting of that person. BM25 knows how common a word is. The model does not, so it does not get the common words.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ARRAY, Text, Uuid

from openmemory.access.rule_cache import revision_of
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.index.bm25 import HASH, K1, query_vector
from openmemory.index.port import NO_WORDS, SparseVector
from openmemory.search.commonness import prepare, smoothed_idf
from openmemory.search.lexical_filter import FORMS, LexicalFilter, ScopeSql, keys_of, words_of
from openmemory.search.own_writes import pending
from openmemory.search.statistics import TABLES

RATE = 0.05
"""The minimum frequency of a common word among a memory's words.

A memory of n words contains it with probability 1 - (1 - RATE)ⁿ. A word in a greater share of the memories is common.
That share is 0.4 for short messages of a conversation, where half and more contain the speakers' names, and
`COMMON_SHARE` for pages, since many meaningful words are in many of these.
"""

COMMON_SHARE = 0.9
"""A word in a greater share of the memories is common, regardless of their length."""

SAMPLE = 100
"""The number of newest memories in the searched scope that are used to find common words."""

MIN_MEMORIES = 20
"""The minimum number of memories in a scope for shares to be meaningful."""

MAX_QUERY_WORDS = 64
"""Longer queries are left unchanged: no single word dominates their vector. Counted in words."""

MAX_LEXEMES = 32
"""The number of lexemes that are looked for, the rarest of the query."""

WIDESPREAD_SHARE, WIDESPREAD = 0.25, 20_000
"""A lexeme that more of the memories contain than both is not looked for if the query has a rarer one. It says little,
and the index reads every memory that contains it."""

MAX_COUNTED = 5_000
"""The number of memories up to which they are counted in a scope without statistics."""


class Lexeme(NamedTuple):
    """A lexeme of the query. `holding` is the number of memories in the searched scope that contain it."""

    text: str
    holding: float
    idf: float


class QueryAnalysis(NamedTuple):
    """A query as the model and the lexical arm get it, and what the same statement reads."""

    text: str
    """The query without its common words, for the model."""
    lexemes: Sequence[Lexeme] = ()
    """The lexemes to look for, the rarest first."""
    vector: SparseVector = NO_WORDS
    """The lexemes as a sparse vector, for the index."""
    revision: int | None = None
    """The revision of the app's rules (`access.rule_cache`). None: the app may read nothing."""
    pending: bool = False
    """Something that the user has just written is not in the index yet, and will be in a moment."""
    waiting: tuple[UUID, ...] | None = ()
    """The user's memories that are not in the index as they are now. None: too many to be listed."""
    late: bool = False
    """One of them has waited for long."""

    @property
    def total(self) -> float:
        """The limit of the scores: that of a memory that contains each lexeme without end."""
        return (K1 + 1) * sum(lexeme.idf for lexeme in self.lexemes)


async def analysed(tx: Tx, query: str, where: LexicalFilter, app: UUID | None = None) -> QueryAnalysis:
    """Analyses a query for a search in these memories.

    The common words stay if most of the query's words are common: they matter together then. Queries of one word, and
    of more than `MAX_QUERY_WORDS`, keep them too. Words are separated by spaces. A word is common if enough of the
    newest memories of the user, or of the searched namespaces, contain a form of it; see `RATE`. Stop words ("what",
    "the") stay, because the model was trained on whole questions.
    """
    query = query.replace("\x00", " ")
    if where.nothing:
        return QueryAnalysis(query)
    await prepare()
    words = query.split()
    if not 1 < len(words) <= MAX_QUERY_WORDS:
        words = []
    [row] = await _statement(where.scope).rows(tx, where.binds | {"query": query, "words": words, "app": app})
    revision, waiting, pending, late, meaningful, common, documents, lexemes, hashes, holding = row
    if common and 2 * len(common) <= len(meaningful):
        query = " ".join(word for place, word in enumerate(words, 1) if place not in common)
    found = [
        Lexeme(text, held, smoothed_idf(documents, held, text))
        for text, held in zip(lexemes or (), holding or (), strict=True)
    ]
    # They come rarest first.
    rare = sum(lexeme.holding <= max(WIDESPREAD_SHARE * documents, WIDESPREAD) for lexeme in found)
    if 0 < rare < len(found):
        found, hashes = found[:rare], hashes[:rare]
    vector = query_vector(hashes, [lexeme.idf for lexeme in found]) if found else NO_WORDS
    listed = None if waiting is None else tuple(waiting)
    return QueryAnalysis(query, found, vector, revision, pending, listed, late)


@lru_cache(maxsize=64)
def _statement(scope: ScopeSql) -> CompiledStatement:
    """One row: the revision; what waits; the places of the meaningful and of the common words; the number of memories;
    and the lexemes, with their hashes and the number of memories that contain them.

    Statistics of large scopes are stored (`search.statistics`). In others, and for rare lexemes, memories are counted.
    """
    known = f"""(select sum(s.documents)::float8 from {TABLES[scope.kind]} s
        where s.user_id = :in_user and s.namespace = any({scope.names}) and s.term = """  # noqa: S608 - see below
    table, allowed = scope.kind.table, scope.allowed("m")
    # Only what the rules allow is counted, so scores reveal nothing about the rest.
    mine = f"{scope.condition('m')} and {allowed}"
    sql = f"""
    with sample as materialized (
      select m.words from {table} m where {mine} and m.state = 'active'
      order by m.created_at desc limit {SAMPLE}
    ), enough as materialized (
      select count(*) * least(
        {COMMON_SHARE}::float8, 1 - power(1 - {RATE}::float8, avg(length(words))::float8)) as least
      from sample having count(*) >= {MIN_MEMORIES}
    ), said as materialized (
      select w.place, lexical_phrase(x.language::regconfig, w.word) as word
      from enough, lexicon x, unnest(:words) with ordinality as w(word, place)
    ), told as materialized (
      select s.place, (select count(*) from sample where sample.words @@ s.word) > enough.least as common
      from said s, enough where numnode(s.word) > 0
    ), scope as materialized (
      select coalesce({known} ''), (select count(*)::float8 from (
        select from {table} m where {mine} and m.state = 'active' limit {MAX_COUNTED}) m)) as documents
    ), spoken as materialized (
      select l.lexeme, {known} l.lexeme) as documents
      from (select distinct w.lexeme from {FORMS}, unnest({words_of(":query")}) w) l
      order by documents nulls first, length(l.lexeme) desc, l.lexeme limit {MAX_LEXEMES}
    ), lexeme as materialized (
      select l.lexeme, {HASH.format(lexeme="l.lexeme")} as hash, coalesce(l.documents, held.documents) as documents
      from (select s.*, array(select hashtextextended(s.lexeme, seed) from unnest({scope.seeds}) seed) as keys
            from spoken s) l cross join lateral (
        select count(*)::float8 as documents from (
          select from {table} m where l.documents is null and {keys_of("m")} && l.keys and m.state = 'active'
            and {allowed} limit {MAX_COUNTED}) m) held
    )
    select rules.revision, outbox.waiting, outbox.pending, outbox.late, (select array_agg(place) from told),
           (select array_agg(place) from told where common), (select documents from scope), l.*
    from ({revision_of(":in_user", ":app")}) rules, {pending(scope.kind)} outbox, (
      select array_agg(lexeme order by documents, lexeme), array_agg(hash order by documents, lexeme),
             array_agg(documents order by documents, lexeme) from lexeme) l
    """  # noqa: S608 - only names and constants are put in
    types: dict[str, Any] = {"in_user": Uuid(), "in_namespaces": ARRAY(Text), "words": ARRAY(Text), "app": Uuid()}
    return CompiledStatement(bound(sql, types), plain=True)

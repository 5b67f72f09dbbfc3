"""Analyses a query in one statement, before the model and the index get it.

Its lexemes get their weights in the searched memories, for BM25. And the model gets the query without the words that
are too common there. In a conversation, nearly every question names one of the speakers. The name does not separate the
memories, since half of them contain it, but it dominates the vector of a short question: such a question is near to
every greeting of that person. BM25 weighs a word by its frequency. The model does not, so it does not get the common
words.
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
from openmemory.database.sql_files import load_sql
from openmemory.index.bm25 import HASH, K1, query_vector
from openmemory.index.port import NO_WORDS, SparseVector
from openmemory.search.candidates.commonness import prepare, smoothed_idf
from openmemory.search.candidates.own_writes import pending
from openmemory.search.sql.lexical_filter import FORMS, LexicalFilter, ScopeSql, keys_of, words_of
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
"""The maximum number of lexemes of a query. They are the rarest."""

WIDESPREAD_SHARE, WIDESPREAD = 0.25, 20_000
"""A lexeme that more of the memories contain than both is not searched for if the query has a rarer one. It is weak
evidence, and the index reads every memory that contains it."""

MAX_COUNTED = 5_000
"""The number of memories up to which they are counted in a scope without statistics."""


class Lexeme(NamedTuple):
    """A lexeme of the query. `document_frequency` is the number of memories in the searched scope that contain it."""

    text: str
    document_frequency: float
    idf: float


class QueryAnalysis(NamedTuple):
    """A query as the model and the lexical arm get it, and what the same statement reads."""

    text: str
    """The query without its common words, for the model."""
    lexemes: Sequence[Lexeme] = ()
    """The lexemes to search for, the rarest first."""
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
    revision, waiting, pending, late, meaningful, common, documents, lexemes, hashes, frequencies = row
    if common and 2 * len(common) <= len(meaningful):
        query = " ".join(word for place, word in enumerate(words, 1) if place not in common)
    query_lexemes = [
        Lexeme(text, frequency, smoothed_idf(documents, frequency, text))
        for text, frequency in zip(lexemes or (), frequencies or (), strict=True)
    ]
    # They come rarest first.
    rare = sum(lexeme.document_frequency <= max(WIDESPREAD_SHARE * documents, WIDESPREAD) for lexeme in query_lexemes)
    if 0 < rare < len(query_lexemes):
        query_lexemes, hashes = query_lexemes[:rare], hashes[:rare]
    vector = query_vector(hashes, [lexeme.idf for lexeme in query_lexemes]) if query_lexemes else NO_WORDS
    waiting_ids = None if waiting is None else tuple(waiting)
    return QueryAnalysis(query, query_lexemes, vector, revision, pending, waiting_ids, late)


@lru_cache(maxsize=64)
def _statement(scope: ScopeSql) -> CompiledStatement:
    """One row: the revision; what waits; the places of the meaningful and of the common words; the number of memories;
    and the lexemes, with their hashes and the number of memories that contain them.

    Statistics of large scopes are stored (`search.statistics`). In others, and for rare lexemes, memories are counted.
    """
    statistics_sql = f"""(select sum(s.documents)::float8 from {TABLES[scope.kind]} s
        where s.user_id = :in_user and s.namespace = any({scope.names}) and s.term = """  # noqa: S608 - see below
    table, allowed_sql = scope.kind.table, scope.allowed("m")
    # Only what the rules allow is counted, so scores reveal nothing about the rest.
    mine = f"{scope.condition('m')} and {allowed_sql}"
    sql = load_sql(
        __name__,
        "analysis",
        table=table,
        mine=mine,
        allowed=allowed_sql,
        known=statistics_sql,
        sample=str(SAMPLE),
        common_share=str(COMMON_SHARE),
        rate=str(RATE),
        min_memories=str(MIN_MEMORIES),
        max_counted=str(MAX_COUNTED),
        forms=FORMS,
        query_words=words_of(":query"),
        max_lexemes=str(MAX_LEXEMES),
        hash=HASH.format(lexeme="l.lexeme"),
        seeds=scope.seeds,
        keys=keys_of("m"),
        revision=revision_of(":in_user", ":app"),
        pending=pending(scope.kind),
    )
    types: dict[str, Any] = {"in_user": Uuid(), "in_namespaces": ARRAY(Text), "words": ARRAY(Text), "app": Uuid()}
    return CompiledStatement(bound(sql, types), plain=True)

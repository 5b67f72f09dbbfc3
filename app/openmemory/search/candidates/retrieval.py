"""The candidates of a search: those near to the question, those with its words, and those written at a time that it
names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import NamedTuple, TypeVar
from uuid import UUID

from openmemory.access.rules import ALL, Rules
from openmemory.embeddings.chance import USUAL, ChanceCosine
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding
from openmemory.index.port import Hit, IndexUnavailable
from openmemory.search.candidates.as_of import ChangedMemories, changed_memories
from openmemory.search.candidates.lexical import LexicalHit, LexicalSearch, best_first
from openmemory.search.candidates.own_writes import wait_until_delivered
from openmemory.search.candidates.query_analysis import QueryAnalysis, analysed
from openmemory.search.candidates.readable import readable
from openmemory.search.context import SearchContext
from openmemory.search.corpus import MEMORIES
from openmemory.search.query.text import has_words
from openmemory.search.sql.as_of import unchanged_since
from openmemory.search.sql.compiled_filter import SearchScope, compiled_filter
from openmemory.search.sql.lexical_filter import LexicalFilter

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_INDEX = "Using text search (vector store unavailable)"
FOREIGN_INDEX = "Using text search (the vector index belongs to another installation; see openmemory doctor)"
NO_EMBEDDER = "Using text search (embedder unavailable)"
INDEX_BEHIND = "Some memories can be found by their words only until the vector index is complete again"

CANDIDATES = 50
"""The initial number of candidates of each arm, or twice the limit if that is more."""


class Dense(NamedTuple):
    """The hits of the dense arm. `answered` is False if it could not search; `note` states what may be missing.
    `chance`: the cosines of the question with unrelated texts."""

    hits: list[Hit]
    note: str | None = None
    answered: bool = True
    chance: ChanceCosine = USUAL


class AnalysedScope(NamedTuple):
    """The memories that the arms read, and the query as it is analysed there."""

    scope: SearchScope
    query: QueryAnalysis


class Question(NamedTuple):
    """The question as the model reads it: the `text` that it embeds, which lacks the common words, and its vector.

    The tokens are those of the whole question: a word that is common among all memories may separate the nearest ones.
    """

    text: str
    embedding: QueryEmbedding


class Lookups:
    """The data that a search looks up once, in however many rounds. The lookups start at once, in the background."""

    def __init__(self, context: SearchContext) -> None:
        # Started first, since it takes longest: a thread embeds while PostgreSQL works.
        space, text = context.space, context.query.text
        whole = _start(space.query(text)) if space.embedder.tokenwise else None
        self.scope = _start(analysed_scope(context))
        self.question = _start(_question(context, self.scope, whole))
        self.dated_hits = (
            _start(_dated_hits(context, self.scope)) if len(context.times) == 1 and context.corpus is MEMORIES else None
        )
        """The memories written at the time that the question names, with a word of it."""
        self.changed_memories = (
            None if context.query.as_of is None else _start(_changed_memories(context, self.scope, self.question))
        )
        """The memories that were changed since the time as of which the search answers."""
        self.rewritten_ids = frozenset[UUID]()
        """The memories whose text is another than that of the time as of which the search answers."""
        self._tasks = [
            task for task in (whole, self.scope, self.question, self.dated_hits, self.changed_memories) if task
        ]

    def close(self) -> None:
        """Cancels pending lookups."""
        for task in self._tasks:
            task.cancel()


def _start(lookup: Awaitable[T]) -> asyncio.Future[T]:
    """Starts a lookup. Who awaits the result gets its failure; otherwise the failure is ignored."""
    task = asyncio.ensure_future(lookup)
    task.add_done_callback(lambda future: future.cancelled() or future.exception())
    return task


async def dense_candidates(context: SearchContext, lookups: Lookups, limit: int) -> Dense:
    """The nearest memories by meaning. Empty, with a reason, if the model or the index does not answer."""
    space = context.space
    if not has_words(context.query.text):
        return Dense([])  # a model does not distinguish signs
    try:
        question = await lookups.question
        scope, query = await lookups.scope
        if question.embedding.unread:
            return Dense([], INDEX_BEHIND if space.behind or query.late else None)
        chance = await space.chance(question.embedding.vector)
        hits = await space.search(question.embedding.vector, scope.index, limit)
        return Dense(hits, INDEX_BEHIND if space.behind or query.late else None, chance=chance)
    except EmbedderUnavailable as error:
        log.debug("no dense candidates: %s", error)
        return Dense([], NO_EMBEDDER, answered=False)
    except IndexUnavailable as error:
        log.debug("no dense candidates: %s", error)
        return Dense([], FOREIGN_INDEX if space.foreign else NO_INDEX, answered=False)


async def lexical_candidates(
    context: SearchContext, lookups: Lookups, limit: int, *, strict: bool = False
) -> list[LexicalHit]:
    """The best memories by words.

    The index answers. PostgreSQL answers if the index does not, or may lack memories, and for those that the index does
    not contain yet. `strict`: PostgreSQL alone answers, since it applies all conditions.
    """
    scope, query = await lookups.scope
    search = lexical_search(context, scope.lexical, query, limit)
    if not has_words(context.query.text):
        async with context.database.statement() as tx:
            return await search.literal_hits(tx)
    hits, waiting = None, query.waiting or ()
    if not strict and is_served_by_index(context, scope, query):
        try:
            index_hits = await context.space.search_words(query.vector, scope.index, limit)
            if context.space.behind is None:  # the first search after a start opens the index, which may lack memories
                hits = search.of_index(hit for hit in index_hits if hit.id not in waiting)
        except IndexUnavailable as error:
            log.debug("PostgreSQL looks for words: %s", error)
    if hits is not None and not waiting and search.is_complete(hits):
        return hits
    async with context.database.statement() as tx:
        if hits is None:
            return await search.hits(tx)
        if waiting:
            hits = best_first([*hits, *await search.by_words(tx, waiting)])[:limit]
        return await search.completed(tx, hits)


def is_served_by_index(context: SearchContext, scope: SearchScope, query: QueryAnalysis) -> bool:
    """Returns True if the index contains all memories and their words, and can apply the filter."""
    filtered = scope.lexical.ids is None and context.filter.beyond_index
    return context.space.behind is None and query.waiting is not None and not filtered


def lexical_search(
    context: SearchContext, where: LexicalFilter, query: QueryAnalysis, limit: int, *, text: str | None = None
) -> LexicalSearch:
    """A search by the words of the query, or of another text."""
    text = (context.query.text if text is None else text).replace("\x00", " ")
    return LexicalSearch(text, query, where, limit, min(limit, context.limit))


async def lists_to_rank(
    context: SearchContext, lookups: Lookups, dense: list[Hit], words: list[LexicalHit]
) -> tuple[list[Hit], list[LexicalHit]]:
    """Both lists as they are to be ranked.

    Adds the memories written at a named time. As of a time, the lists are those of that time. If the search explains
    its answer, hits that the caller may not read are removed: a rank reveals how many hits are above it.
    """
    if lookups.dated_hits is not None and (dated_hits := await lookups.dated_hits):
        hit_ids = {hit.id for hit in words}
        words = best_first([*words, *(hit for hit in dated_hits if hit.id not in hit_ids)])
    ids = [hit.id for hit in dense] + [hit.id for hit in words]
    if context.query.as_of is not None and lookups.changed_memories is not None:
        changes = await lookups.changed_memories
        async with context.database.statement() as tx:
            unchanged_ids = await unchanged_since(tx, context.caller, ids, context.query.as_of)
        dense_ids, word_ids = ({hit.id for hit in hits} for hits in changes)
        lookups.rewritten_ids = frozenset(word_ids - dense_ids)
        # The index may still contain a memory that was archived a moment ago.
        unchanged_ids -= dense_ids | word_ids
        dense = [*(hit for hit in dense if hit.id in unchanged_ids), *changes.dense]
        words = [*(hit for hit in words if hit.id in unchanged_ids), *changes.words]
        return sorted(dense, key=lambda hit: -hit.score), best_first(words)
    if context.query.explain:
        async with context.database.statement() as tx:
            readable_ids = await readable(tx, context.caller, ids, context.corpus)
        return [hit for hit in dense if hit.id in readable_ids], [hit for hit in words if hit.id in readable_ids]
    return dense, words


async def contains_literally(context: SearchContext) -> bool:
    """Returns True if a memory contains a query without meaningful words as it is written, such as "The Who"."""
    scope, query = await analysed_scope(context)
    async with context.database.statement() as tx:
        hits = await lexical_search(context, scope.lexical, query, 1).hits(tx)
    return any(hit.partial for hit in hits)


async def analysed_scope(context: SearchContext) -> AnalysedScope:
    """The memories that the arms read, and the analysed query.

    Reads the rules of the app, and the ids that match the query's filters if these are few and the index cannot apply
    them.
    """
    text, caller = context.query.text, context.caller
    scope = _cached_scope(context)
    if scope is not None and not scope.lexical.nothing:
        # Rules seldom change. One lookup gets them with all else, on the assumption that they did not.
        async with context.database.statement() as tx:
            query = await analysed(tx, text, scope.lexical, None if caller.owner else caller.app_id)
        if caller.owner or context.rulebook.still(caller, query.revision) is scope.rules:
            return AnalysedScope(scope, query)
    scope = context.filter.within(*await asyncio.gather(_rules(context), context.filter.matching(context.database)))
    async with context.database.statement() as tx:
        return AnalysedScope(scope, await analysed(tx, text, scope.lexical))


def _cached_scope(context: SearchContext) -> SearchScope | None:
    """The scope with cached rules, which may be outdated. None if that is not possible."""
    if context.filter.beyond_index:
        return None
    rules = ALL if context.caller.owner else context.rulebook.from_cache(context.caller)
    return None if rules is None else context.filter.within(rules)


async def _rules(context: SearchContext) -> Rules:
    if context.caller.owner:
        return ALL
    async with context.database.statement() as tx:
        return await context.rulebook.of(tx, context.caller)


async def _question(
    context: SearchContext, analysis: Awaitable[AnalysedScope], embedding: Awaitable[QueryEmbedding] | None
) -> Question:
    """The question. `embedding`: that of the whole text, if the model computes tokens.

    Raises:
        EmbedderUnavailable: the model does not answer.
    """
    _, query = await analysis
    if query.pending and context.space.answers:
        await wait_until_delivered(context.database, context.caller.user_id, context.write_wait, context.corpus.kind)
    text = query.text
    if embedding is None:
        return Question(text, (await context.space.query(text))._replace(tokens=None))
    # The two texts are usually the same, so the model works while rules and common words are looked up.
    whole = await embedding
    if text == context.query.text:
        return Question(text, whole)
    return Question(text, (await context.space.query(text))._replace(tokens=whole.tokens))


async def _dated_hits(context: SearchContext, analysis: Awaitable[AnalysedScope]) -> list[LexicalHit]:
    """The memories written at a time that contain a word of the query, also those that are not among the best."""
    [period], (scope, query) = context.times, await analysis
    since, until = context.query.created_from or period.start, context.query.created_to or period.end
    within = compiled_filter(context.caller, replace(context.query, created_from=since, created_to=until))
    where = within.within(scope.rules, scope.lexical.ids).lexical
    search = replace(lexical_search(context, where, query, CANDIDATES), enough=0)
    async with context.database.statement() as tx:
        return await search.hits(tx)


async def _changed_memories(
    context: SearchContext, analysis: Awaitable[AnalysedScope], question: Awaitable[Question]
) -> ChangedMemories:
    _, query = await analysis
    try:
        vector = (await question).embedding.vector
    except EmbedderUnavailable:
        vector = None
    return await changed_memories(context, query, vector)

"""The candidates of a search: those near to the question, those with its words, and those written at a time that it
names."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from dataclasses import replace
from typing import NamedTuple, TypeVar

from sqlalchemy import ColumnElement, and_

from openmemory.access.readable import readable_by
from openmemory.access.rules import ALL, Rules
from openmemory.embeddings.port import EmbedderUnavailable, QueryEmbedding
from openmemory.identity.caller import Caller, Default
from openmemory.index.port import Hit, IndexUnavailable
from openmemory.memories.models import Memory
from openmemory.search import lexical
from openmemory.search.as_of import unchanged_since
from openmemory.search.as_of_candidates import ChangedMemories, changed_memories
from openmemory.search.compiled_filter import SearchScope
from openmemory.search.context import SearchContext
from openmemory.search.filter_sql import Shape, by_shape, is_usual, predicate
from openmemory.search.late_interaction import TokenReader
from openmemory.search.lexical import LexicalHit
from openmemory.search.own_writes import delivered
from openmemory.search.query_terms import filtered_query
from openmemory.search.readback import readable

log = logging.getLogger(__name__)

T = TypeVar("T")

NO_INDEX = "Using text search (vector store unavailable)"
NO_EMBEDDER = "Using text search (embedder unavailable)"
INDEX_BEHIND = "Some memories can be found by their words only until the vector index is complete again"

CANDIDATES = 50
"""The initial number of candidates of each arm, or three times the limit if that is more."""


class Dense(NamedTuple):
    """The hits of the dense arm. `answered` is False if it could not search; `note` says what may be missing."""

    hits: list[Hit]
    note: str | None = None
    answered: bool = True


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
        whole = _started(space.query(text)) if space.embedder.tokenwise else None
        self.guess = _cached_scope(context)
        self.scope = _started(_scope(context, self.guess))
        self.question = _started(_question(context, self.scope, whole))
        self.written = _started(_written(context, self.scope)) if len(context.times) == 1 else None
        """The memories written at the time that the question names, with a word of it."""
        self.changed = None if context.query.as_of is None else _started(_changed(context, self.question))
        """The memories that were changed since the time as of which the search answers."""
        self.tokens = TokenReader(context)
        self._tasks = [task for task in (whole, self.scope, self.question, self.written, self.changed) if task]

    def close(self) -> None:
        """Cancels pending lookups."""
        for task in self._tasks:
            task.cancel()


def _started(lookup: Awaitable[T]) -> asyncio.Future[T]:
    """Starts a lookup. Who awaits the result gets its failure; otherwise the failure is ignored."""
    task = asyncio.ensure_future(lookup)
    task.add_done_callback(lambda done: done.cancelled() or done.exception())
    return task


async def dense_candidates(context: SearchContext, lookups: Lookups, limit: int) -> Dense:
    """The nearest memories by meaning. Empty, with a reason, if the model or the index does not answer."""
    space = context.space
    try:
        question = await lookups.question
        hits = await space.search(question.embedding.vector, (await lookups.scope).index, limit)
        return Dense(hits, INDEX_BEHIND if space.behind else None)
    except EmbedderUnavailable as error:
        log.debug("no dense candidates: %s", error)
        return Dense([], NO_EMBEDDER, answered=False)
    except IndexUnavailable as error:
        log.debug("no dense candidates: %s", error)
        return Dense([], NO_INDEX, answered=False)


async def lexical_candidates(
    context: SearchContext, lookups: Lookups, limit: int, *, strict: bool = False
) -> list[LexicalHit]:
    """The best memories by words.

    Conditions beyond the rules and the filters of the lexical statement are applied in the database only if `strict`,
    or if a filter would let few memories through. Read-back applies them in any case.
    """
    if not lookups.scope.done() and (guess := lookups.guess) is not None:
        # Rules seldom change: the search uses the cached ones until the current ones are known.
        hits = await _by_words(context, guess, limit, strict=strict)
        if (await lookups.scope).rules is guess.rules:
            return hits
    return await _by_words(context, await lookups.scope, limit, strict=strict)


async def listed(
    context: SearchContext, lookups: Lookups, dense: list[Hit], words: list[LexicalHit]
) -> tuple[list[Hit], list[LexicalHit]]:
    """Both lists as they are to be ranked.

    Adds the memories written at a named time. As of a time, the lists are those of that time. If the search explains
    its answer, hits that the caller may not read are removed: a rank reveals how many hits are above it.
    """
    if lookups.written is not None and (written := await lookups.written):
        known = {hit.id for hit in words}
        words = _best_first([*words, *(hit for hit in written if hit.id not in known)])
    ids = [hit.id for hit in dense] + [hit.id for hit in words]
    if context.query.as_of is not None and lookups.changed is not None:
        changed = await lookups.changed
        async with context.database.statement() as tx:
            there = await unchanged_since(tx, context.caller, ids, context.query.as_of)
        near, said = ({hit.id for hit in hits} for hits in changed)
        # The stored tokens of a rewritten memory belong to another text.
        lookups.tokens.keep(said - near)
        # The index may still contain a memory that was archived a moment ago.
        there -= near | said
        dense = [*(hit for hit in dense if hit.id in there), *changed.dense]
        words = [*(hit for hit in words if hit.id in there), *changed.words]
        return sorted(dense, key=lambda hit: -hit.score), _best_first(words)
    if context.query.explain:
        async with context.database.statement() as tx:
            there = await readable(tx, context.caller, ids)
        return [hit for hit in dense if hit.id in there], [hit for hit in words if hit.id in there]
    return dense, words


def _best_first(words: list[LexicalHit]) -> list[LexicalHit]:
    """Partial matches stay behind."""
    return sorted(words, key=lambda hit: (hit.partial, -hit.score))


async def holds_literally(context: SearchContext) -> bool:
    """Returns True if a memory contains a query without meaningful words as it is written, such as "The Who"."""
    text, where, caller = context.query.text, context.filter, context.caller
    async with context.database.statement() as tx:
        hits = await lexical.search(
            tx,
            text,
            where.lexical,
            1,
            readable=_readable(caller.owner, caller.default, where.shape),
            parameters=where.parameters,
            kept=is_usual(where.shape),
        )
    return any(hit.partial for hit in hits)


async def _by_words(context: SearchContext, scope: SearchScope, limit: int, *, strict: bool) -> list[LexicalHit]:
    text, where, caller = context.query.text, context.filter, context.caller
    async with context.database.statement() as tx:
        if not (strict or (scope.lexical.ids is None and where.beyond_words)):
            return await lexical.search(tx, text, scope.lexical, limit, enough=context.limit)
        return await lexical.search(
            tx,
            text,
            scope.lexical,
            limit,
            enough=context.limit,
            readable=_readable(caller.owner, caller.default, where.shape),
            parameters=where.parameters,
            kept=is_usual(where.shape),
        )


async def _scope(context: SearchContext, guess: SearchScope | None) -> SearchScope:
    """The rules of the app, and the ids that match the query's filters if these are few and the index cannot apply
    them."""
    text, caller = context.query.text, context.caller
    if guess is not None and not guess.lexical.nothing:
        # The text for the model depends on the rules. One lookup gets both, on the assumption that the rules did not
        # change.
        async with context.database.statement() as tx:
            app = None if caller.owner else caller.app_id
            query = await filtered_query(tx, text, guess.lexical, app)
        if caller.owner or context.rulebook.still(caller, query.revision) is guess.rules:
            return SearchScope(guess.lexical, guess.index, query)
    return context.filter.within(*await asyncio.gather(_rules(context), context.filter.matching(context.database)))


def _cached_scope(context: SearchContext) -> SearchScope | None:
    """The scope with cached rules, which may be outdated. None if that is not possible."""
    if context.filter.beyond_index:
        return None
    rules = ALL if context.caller.owner else context.rulebook.remembered(context.caller)
    return None if rules is None else context.filter.within(rules)


async def _rules(context: SearchContext) -> Rules:
    if context.caller.owner:
        return ALL
    async with context.database.statement() as tx:
        return await context.rulebook.of(tx, context.caller)


async def _question(
    context: SearchContext, scoped: Awaitable[SearchScope], embedded: Awaitable[QueryEmbedding] | None
) -> Question:
    """The question, `embedded` as a whole if the model computes tokens.

    Raises:
        EmbedderUnavailable: the model does not answer.
    """
    scope, text = await scoped, context.query.text
    query = scope.query
    if query is None:
        async with context.database.statement() as tx:
            query = await filtered_query(tx, text, scope.lexical)
    if query.pending and context.space.answers:
        await delivered(context.database, context.caller.user_id, context.write_wait)
    meant = query.text
    if embedded is None:
        return Question(meant, (await context.space.query(meant))._replace(tokens=None))
    # The two texts are usually the same, so the model works while rules and common words are looked up.
    whole = await embedded
    if meant == text:
        return Question(meant, whole)
    return Question(meant, (await context.space.query(meant))._replace(tokens=whole.tokens))


async def _written(context: SearchContext, scoped: Awaitable[SearchScope]) -> list[LexicalHit]:
    """The memories written at a time that contain a word of the query, also those that are not among the best."""
    [then], where = context.times, (await scoped).lexical
    where = replace(where, since=where.since or then.start, until=where.until or then.end)
    async with context.database.statement() as tx:
        return await lexical.search(tx, context.query.text, where, CANDIDATES, enough=0)


async def _changed(context: SearchContext, asked: Awaitable[Question]) -> ChangedMemories:
    try:
        vector = (await asked).embedding.vector
    except EmbedderUnavailable:
        vector = None
    return await changed_memories(context, vector)


@by_shape
def _readable(owner: bool, default: Default, shape: Shape) -> ColumnElement[bool]:
    """The predicate for what callers of one kind may read of a query's matches: one object, so that statements with it
    are cached."""
    return and_(readable_by(Caller.anyone(owner=owner, default=default), Memory), predicate(shape))

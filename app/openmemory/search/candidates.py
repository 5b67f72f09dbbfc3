"""The two retrieval arms of a search: their queries, and the combination of their results."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, and_

from openmemory.access.readable import readable_by
from openmemory.access.rule_cache import RuleCache
from openmemory.access.rules import ALL, Rules
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.embeddings.port import PACKAGED, EmbedderUnavailable, QueryEmbedding, Tokens
from openmemory.identity.caller import Caller, Default
from openmemory.index import tokens
from openmemory.index.port import Filter, Hit, IndexUnavailable
from openmemory.index.space import Spaces
from openmemory.index.tokens import StoredTokens
from openmemory.memories.models import Memory
from openmemory.search import lexical
from openmemory.search.as_of import unchanged_since
from openmemory.search.as_of_candidates import ChangedMemories, changed_memories
from openmemory.search.context import thread_context
from openmemory.search.explanation import AnswerExplanation, SearchRound, left_out, shared, times_read
from openmemory.search.filter_ids import is_narrowed, matching
from openmemory.search.filter_sql import Shape, by_shape, filtering, is_usual
from openmemory.search.fusion import Fused, fuse, relevant
from openmemory.search.late_interaction import HEAVY, READ, LateScore, compared
from openmemory.search.lexical import LexicalFilter, LexicalHit
from openmemory.search.periods import Period
from openmemory.search.query_terms import may_have_common_words, without_common_words, without_common_words_for
from openmemory.search.readback import conditions, parameters, readable
from openmemory.search.recency import Recency, add_recency, moments
from openmemory.search.schemas import SearchQuery
from openmemory.search.threads import HEARD, ThreadNeighbour, heard, links

log = logging.getLogger(__name__)

NO_INDEX = "Using text search (vector store unavailable)"
NO_EMBEDDER = "Using text search (embedder unavailable)"
INDEX_BEHIND = "Some memories can be found by their words only until the vector index is complete again"

FLOORS = {PACKAGED: 0.2}
"""Cosines below which a model's vectors are meaningless. The packaged model's are 0.05 on average for unrelated
sentences, with a deviation of 0.07. An answer without any word of the question has 0.22 in nineteen of twenty cases."""

CANDIDATES = 50
"""The initial number of candidates of each arm, or three times the limit if that is more."""


class Dense(NamedTuple):
    """The hits of the dense arm. `answered` is False if it could not search; `note` says what may be missing."""

    hits: list[Hit]
    note: str | None = None
    answered: bool = True


class SearchResources(NamedTuple):
    """The resources that all searches share."""

    database: Database
    spaces: Spaces
    settings: Settings
    rulebook: RuleCache


class Retrieval:
    """The arms of one search. Each may be called several times, with growing limits."""

    def __init__(
        self, means: SearchResources, caller: Caller, query: SearchQuery, times: Sequence[Period] = ()
    ) -> None:
        self._database = means.database
        self._rulebook = means.rulebook
        self._space = means.spaces.serving
        self._caller = caller
        self._query = query
        self._focused: str | None = None
        """The query without its common words, if that was computed with the rules."""
        # Started first, since it takes longest: a thread embeds while PostgreSQL works.
        self._whole = self._embedding() if self._space.embedder.tokenwise else None
        self._narrowed = asyncio.ensure_future(self._narrow())
        self._times = times
        self._then: list[LexicalHit] | None = None
        self._changed: ChangedMemories | None = None
        self._question: QueryEmbedding | None = None
        self._words: Tokens | None = None
        """The tokens of the whole question."""
        self._kept = tokens.NONE
        self._looked_at: set[UUID] = set()
        """The memories whose tokens need no lookup: they were read, or belong to another text."""
        self._now = query.as_of or datetime.now(UTC)
        days = means.settings.search.recency
        # Rounded to the hour, so that equal searches have equal scores.
        hour = self._now.replace(minute=0, second=0, microsecond=0)
        self._recency = Recency(timedelta(days=days), hour) if days else None
        self.asked: str | None = None
        """The text that the model embedded."""
        self.round: SearchRound | None = None
        """The rankings of the last round, if they are to be explained."""
        floor = means.settings.search.floor
        self.floor: float | None = FLOORS.get(self._space.model) if floor == "auto" else floor
        """The minimum cosine for a memory that shares no word with the query."""

    def close(self) -> None:
        """Cancels pending lookups."""
        self._narrowed.cancel()
        if self._whole is not None:
            self._whole.cancel()

    async def dense(self, limit: int) -> Dense:
        """The nearest memories by meaning. Empty, with a reason, if the model or the index does not answer."""
        caller, query = self._caller, self._query
        try:
            if self._question is None:
                self._question, self.asked = await self._understood()
            said = await self._narrowed
            where = Filter(
                caller.user_id,
                namespaces=query.namespaces,
                kinds=query.kinds,
                apps=query.app_ids,
                rules=said.rules,
                ids=said.ids,
            )
            hits = await self._space.search(self._question.vector, where, limit)
            return Dense(hits, INDEX_BEHIND if self._space.behind else None)
        except EmbedderUnavailable as error:
            log.debug("no dense candidates: %s", error)
            return Dense([], NO_EMBEDDER, answered=False)
        except IndexUnavailable as error:
            log.debug("no dense candidates: %s", error)
            return Dense([], NO_INDEX, answered=False)

    async def words(self, limit: int, *, enough: int, strict: bool) -> list[LexicalHit]:
        """The best memories by words.

        Conditions outside the rules and the filters bound here are applied in the database only if `strict`, or if a
        filter would let few memories through. Read-back applies them in any case.
        """
        if not self._narrowed.done() and (guess := self._guess()) is not None:
            # Rules seldom change: the search uses the cached ones until the current ones are known.
            hits = await self._said(guess, limit, enough=enough, strict=strict)
            if (await self._narrowed).rules is guess.rules:
                return hits
        return await self._said(await self._narrowed, limit, enough=enough, strict=strict)

    async def _said(self, where: LexicalFilter, limit: int, *, enough: int, strict: bool) -> list[LexicalHit]:
        caller, query = self._caller, self._query
        async with self._database.statement() as tx:
            if strict or (where.ids is None and (query.filter or query.categories or len(query.threads) > 1)):
                kept = is_usual(shape := filtering(query.filter).shape)
                readable = _readable(caller.owner, caller.default, shape)
                binds = caller.parameters | parameters(query)
                return await lexical.search(
                    tx, query.text, where, limit, enough=enough, readable=readable, parameters=binds, kept=kept
                )
            return await lexical.search(tx, query.text, where, limit, enough=enough)

    async def ranked(self, dense: list[Hit], words: list[LexicalHit]) -> list[Fused]:
        """Fuses the results of both arms, best first, with the scores for threads, for the times that the query names,
        and for the tokens of the best."""
        times = self._times
        if self._then is None:
            self._then = await self._written(times[0]) if len(times) == 1 else []
        words = _together(words, self._then)
        if self._query.as_of is not None:
            dense, words = await self._as_then(dense, words, self._query.as_of)
        elif self._query.explain:
            dense, words = await self._readable(dense, words)
        fused = hits = relevant(fuse(dense, words), self.floor)
        if not hits:
            self.round = SearchRound(dense, words)
            return hits
        question = self._words if dense else None
        # Most of the best are already among the best here. Those that threads or times add are read later.
        near = await self._near(hits, compare=question is not None)
        hits = heard(hits, near, words)
        factor, written = hits[0].scale, {}
        if times or self._recency:
            async with self._database.statement() as tx:
                written = await moments(tx, self._caller.user_id, [hit.id for hit in hits])
            hits = add_recency(hits, written, times, self._recency)
        told: dict[UUID, LateScore] = {}
        if question is not None:
            await self._read(hits)
            if len(self._kept.tokens) < HEAVY:
                hits, told = compared(hits, question, self._kept)
            else:
                hits, told = await asyncio.to_thread(compared, hits, question, self._kept)
        if self._query.explain:
            self.round = SearchRound(dense, words, fused, near, factor, written, times, self._recency, told)
        return hits

    async def _near(self, hits: list[Fused], *, compare: bool = False) -> list[ThreadNeighbour]:
        """The thread neighbours of the best hits. With `compare`, the same statement reads their tokens."""
        async with self._database.statement() as tx:
            if compare and (new := self._unread(hits)):
                near, found = await thread_context(
                    tx, self._caller, [hit.id for hit in hits[:HEARD]], self._space.model, new
                )
                self._keep(new, found)
            else:
                near = await links(tx, self._caller, [hit.id for hit in hits[:HEARD]])
            if self._query.as_of is not None:
                others = [link.neighbour for link in near if link.neighbour is not None]
                there = {None, *(await unchanged_since(tx, self._caller, others, self._query.as_of))}
                near = [link for link in near if link.neighbour in there]
        return near

    async def _read(self, hits: list[Fused]) -> None:
        """Reads the tokens of the best hits, once each."""
        if not (new := self._unread(hits)):
            return
        async with self._database.statement() as tx:
            self._keep(new, await tokens.of_memories(tx, self._caller.user_id, self._space.model, new))

    def _unread(self, hits: list[Fused]) -> list[UUID]:
        """Those of the best hits whose tokens are not read yet."""
        return [hit.id for hit in hits[:READ] if hit.id not in self._looked_at]

    def _keep(self, new: list[UUID], found: StoredTokens) -> None:
        self._looked_at.update(new)
        self._kept = self._kept.joined(found)

    async def _as_then(
        self, dense: list[Hit], words: list[LexicalHit], as_of: datetime
    ) -> tuple[list[Hit], list[LexicalHit]]:
        """Both lists as of then.

        Removes memories that did not exist or had another text, and adds those that were changed since, which are
        searched for separately.
        """
        ids = [hit.id for hit in dense] + [hit.id for hit in words]
        async with self._database.statement() as tx:
            if self._changed is None:
                vector = None if self._question is None else self._question.vector
                self._changed = await changed_memories(tx, self._caller, self._query, vector, self._space.model)
            there = await unchanged_since(tx, self._caller, ids, as_of)
            # The stored tokens of a rewritten memory belong to another text.
            self._looked_at |= {hit.id for hit in self._changed.words} - {hit.id for hit in self._changed.dense}
        # The index may still contain a memory that was archived a moment ago.
        there -= {hit.id for hit in self._changed.dense} | {hit.id for hit in self._changed.words}
        near = [*(hit for hit in dense if hit.id in there), *self._changed.dense]
        said = [*(hit for hit in words if hit.id in there), *self._changed.words]
        near.sort(key=lambda hit: -hit.score)
        return near, sorted(said, key=lambda hit: (hit.partial, -hit.score))

    async def _readable(self, dense: list[Hit], words: list[LexicalHit]) -> tuple[list[Hit], list[LexicalHit]]:
        """Removes hits that the caller may not read: a rank reveals how many hits are above it."""
        ids = [hit.id for hit in dense] + [hit.id for hit in words]
        async with self._database.statement() as tx:
            may_read = await readable(tx, self._caller, ids)
        return [hit for hit in dense if hit.id in may_read], [hit for hit in words if hit.id in may_read]

    def explanation(self, *, answered: bool) -> AnswerExplanation:
        """The explanation of how the question was understood. `answered`: the model and the index answered in the last
        round."""
        meant = self.asked if answered else None
        last = self.round or SearchRound([], [])
        return AnswerExplanation(
            embedded=meant,
            left_out=[] if meant is None else left_out(self._query.text, meant),
            dense_share=shared(last) if last.dense or last.words else None,
            floor=self.floor,
            times=times_read(self._times),
            candidates={"words": len(last.words), "meaning": len(last.dense)},
            recency=None if self._recency is None else self._recency.half_life / timedelta(days=1),
            as_of=self._query.as_of,
        )

    async def _narrow(self) -> LexicalFilter:
        """The filter to search with: the rules of the app, and the ids that match the query's filters if these are few
        and the index cannot apply them."""
        text, caller = self._query.text, self._caller
        if (guess := self._guess()) is not None and may_have_common_words(text, guess):
            # The text for the model depends on the rules. One lookup gets both, on the assumption that the rules did
            # not change.
            async with self._database.statement() as tx:
                look = await without_common_words_for(tx, text, guess, None if caller.owner else caller.app_id)
            if caller.owner or self._rulebook.still(caller, look.revision) is guess.rules:
                self._focused = look.text
                return guess
        return self._where(*await asyncio.gather(self._rules(), matching(self._database, caller, self._query)))

    def _guess(self) -> LexicalFilter | None:
        """The filter with cached rules, which may be outdated. None if that is not possible."""
        if is_narrowed(self._query):
            return None
        rules = ALL if self._caller.owner else self._rulebook.remembered(self._caller)
        return None if rules is None else self._where(rules)

    def _where(self, rules: Rules, ids: tuple[UUID, ...] | None = None) -> LexicalFilter:
        query = self._query
        return LexicalFilter(
            self._caller.user_id,
            namespaces=query.namespaces,
            thread=query.threads[0] if len(query.threads) == 1 else None,
            kinds=query.kinds,
            apps=query.app_ids,
            since=query.created_from,
            until=query.created_to,
            rules=rules,
            ids=ids,
        )

    async def _rules(self) -> Rules:
        if self._caller.owner:
            return ALL
        async with self._database.statement() as tx:
            return await self._rulebook.of(tx, self._caller)

    async def _understood(self) -> tuple[QueryEmbedding, str]:
        """The embedding of the question without its common words, and that text.

        The tokens are those of the whole question: a word that is common among all memories may separate the nearest
        ones.
        """
        meant = await self._meant()
        if self._whole is None:
            return await self._space.query(meant), meant
        # The two are usually the same, so the model works while rules and common words are looked up.
        whole = await self._whole
        self._words = whole.tokens
        return whole if meant == self._query.text else await self._space.query(meant), meant

    def _embedding(self) -> asyncio.Future[QueryEmbedding]:
        """Embeds the whole question. A caller that awaits the result gets its failure; otherwise the failure is
        ignored."""
        asked = asyncio.ensure_future(self._space.query(self._query.text))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asked

    async def _meant(self) -> str:
        where = await self._narrowed
        if self._focused is not None:
            return self._focused
        async with self._database.statement() as tx:
            return await without_common_words(tx, self._query.text, where)

    async def _written(self, then: Period) -> list[LexicalHit]:
        """The memories written at a time that contain a word of the query, also those that are not among the best."""
        where = await self._narrowed
        where = replace(where, since=where.since or then.start, until=where.until or then.end)
        async with self._database.statement() as tx:
            return await lexical.search(tx, self._query.text, where, CANDIDATES, enough=0)


def _together(words: list[LexicalHit], more: list[LexicalHit]) -> list[LexicalHit]:
    """Merges both lists, best first. Partial matches stay behind."""
    if not more:
        return words
    known = {hit.id for hit in words}
    return sorted([*words, *(hit for hit in more if hit.id not in known)], key=lambda hit: (hit.partial, -hit.score))


@by_shape
def _readable(owner: bool, default: Default, shape: Shape) -> ColumnElement[bool]:
    """The predicate for what callers of one kind may read of a query's matches: one object, so that statements with it
    are cached."""
    return and_(readable_by(Caller.anyone(owner=owner, default=default), Memory), conditions(shape))

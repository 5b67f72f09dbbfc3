"""The two arms of a search: what each of them is asked, and what is made of both answers."""

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
from openmemory.access.rule_cache import Rulebook
from openmemory.access.rules import ALL, Rules
from openmemory.config.settings import Settings
from openmemory.database.engine import Database
from openmemory.embeddings.port import PACKAGED, EmbedderUnavailable, Question, Tokens
from openmemory.identity.caller import Caller, Default
from openmemory.index import tokens
from openmemory.index.port import Filter, Hit, IndexUnavailable
from openmemory.index.space import Spaces
from openmemory.index.tokens import Kept
from openmemory.memories.models import Memory
from openmemory.search import lexical
from openmemory.search.as_of import as_then
from openmemory.search.as_of_candidates import Changed, changed
from openmemory.search.context import around
from openmemory.search.explanation import AnswerExplanation, Round, left_out, shared, times_read
from openmemory.search.filter_ids import is_narrowed, matching
from openmemory.search.filter_sql import Shape, by_shape, filtering, is_usual
from openmemory.search.fusion import Fused, fuse, relevant
from openmemory.search.late_interaction import HEAVY, READ, Told, compared
from openmemory.search.lexical import LexicalFilter, LexicalHit
from openmemory.search.periods import Period
from openmemory.search.query_terms import focused, focused_for, looks
from openmemory.search.readback import conditions, parameters, readable
from openmemory.search.recency import Recency, dated, moments
from openmemory.search.schemas import SearchQuery
from openmemory.search.threads import HEARD, Link, heard, links

log = logging.getLogger(__name__)

NO_INDEX = "Using text search (vector store unavailable)"
NO_EMBEDDER = "Using text search (embedder unavailable)"
INDEX_BEHIND = "Some memories can be found by their words only until the vector index is complete again"

FLOORS = {PACKAGED: 0.2}
"""Cosines below which the vectors of a model tell nothing. The packaged model's are 0.05 on average for sentences about
different things, with a deviation of 0.07; what answers a question without its words has 0.22 nineteen times of twenty.
"""

CANDIDATES = 50
"""Candidates that each arm is asked for at first, or three times the limit if that is more."""


class Dense(NamedTuple):
    """The hits of the dense arm. `answered` is False when it could not look; `note` says what may be missing."""

    hits: list[Hit]
    note: str | None = None
    answered: bool = True


class Means(NamedTuple):
    """What all searches look with."""

    database: Database
    spaces: Spaces
    settings: Settings
    rulebook: Rulebook


class Arms:
    """The arms of one search: each may be asked several times, for more and more."""

    def __init__(self, means: Means, caller: Caller, query: SearchQuery, times: Sequence[Period] = ()) -> None:
        self._database = means.database
        self._rulebook = means.rulebook
        self._space = means.spaces.serving
        self._caller = caller
        self._query = query
        self._focused: str | None = None
        """The query without its common words, where that was looked up with the rules."""
        # First of all, since it takes longest: a thread embeds while PostgreSQL is asked.
        self._whole = self._embedding() if self._space.embedder.tokenwise else None
        self._narrowed = asyncio.ensure_future(self._narrow())
        self._times = times
        self._then: list[LexicalHit] | None = None
        self._changed: Changed | None = None
        self._question: Question | None = None
        self._words: Tokens | None = None
        """The tokens of the whole question."""
        self._kept = tokens.NONE
        self._looked_at: set[UUID] = set()
        """Whose tokens need no look: they were read, or say something else."""
        self._now = query.as_of or datetime.now(UTC)
        days = means.settings.search.recency
        # By the hour: what is asked twice has the same scores.
        hour = self._now.replace(minute=0, second=0, microsecond=0)
        self._recency = Recency(timedelta(days=days), hour) if days else None
        self.asked: str | None = None
        """What the model was asked, and answered."""
        self.round: Round | None = None
        """What the last round ranked, where that is to be explained."""
        floor = means.settings.search.floor
        self.floor: float | None = FLOORS.get(self._space.model) if floor == "auto" else floor
        """The cosine from which on a memory is near to the query though they share no word."""

    def close(self) -> None:
        """Give up what is still being looked up."""
        self._narrowed.cancel()
        if self._whole is not None:
            self._whole.cancel()

    async def dense(self, limit: int) -> Dense:
        """The nearest by meaning; none, and why, if the model or the index does not answer."""
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
        """The best by words. What is decided neither by rules nor by the filters that are bound here is passed over in
        the database only when `strict`, or when a filter would let few through: reading back passes it over anyway."""
        if not self._narrowed.done() and (guess := self._guess()) is not None:
            # Rules seldom change: the words are looked for by those that are remembered until it is known.
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
        """What both found as one list, best first: with what threads tell of it, the times that the query names, and
        the tokens of the best."""
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
            self.round = Round(dense, words)
            return hits
        question = self._words if dense else None
        # Most of the best are among the best already; what threads or times bring among them is read later.
        near = await self._near(hits, compare=question is not None)
        hits = heard(hits, near, words)
        factor, written = hits[0].scale, {}
        if times or self._recency:
            async with self._database.statement() as tx:
                written = await moments(tx, self._caller.user_id, [hit.id for hit in hits])
            hits = dated(hits, written, times, self._recency)
        told: dict[UUID, Told] = {}
        if question is not None:
            await self._read(hits)
            if len(self._kept.tokens) < HEAVY:
                hits, told = compared(hits, question, self._kept)
            else:
                hits, told = await asyncio.to_thread(compared, hits, question, self._kept)
        if self._query.explain:
            self.round = Round(dense, words, fused, near, factor, written, times, self._recency, told)
        return hits

    async def _near(self, hits: list[Fused], *, compare: bool = False) -> list[Link]:
        """What stands beside the best in their threads; to `compare` them, their tokens are read on the way."""
        async with self._database.statement() as tx:
            if compare and (new := self._unread(hits)):
                near, found = await around(tx, self._caller, [hit.id for hit in hits[:HEARD]], self._space.model, new)
                self._keep(new, found)
            else:
                near = await links(tx, self._caller, [hit.id for hit in hits[:HEARD]])
            if self._query.as_of is not None:
                others = [link.neighbour for link in near if link.neighbour is not None]
                there = {None, *(await as_then(tx, self._caller, others, self._query.as_of))}
                near = [link for link in near if link.neighbour in there]
        return near

    async def _read(self, hits: list[Fused]) -> None:
        """Read the tokens of the best, once each."""
        if not (new := self._unread(hits)):
            return
        async with self._database.statement() as tx:
            self._keep(new, await tokens.of_memories(tx, self._caller.user_id, self._space.model, new))

    def _unread(self, hits: list[Fused]) -> list[UUID]:
        """Those of the best whose tokens are to be looked for."""
        return [hit.id for hit in hits[:READ] if hit.id not in self._looked_at]

    def _keep(self, new: list[UUID], found: Kept) -> None:
        self._looked_at.update(new)
        self._kept = self._kept.joined(found)

    async def _as_then(
        self, dense: list[Hit], words: list[LexicalHit], as_of: datetime
    ) -> tuple[list[Hit], list[LexicalHit]]:
        """Both lists as they were then: without what was not there or said something else, and with what is looked for
        apart because it was changed since."""
        ids = [hit.id for hit in dense] + [hit.id for hit in words]
        async with self._database.statement() as tx:
            if self._changed is None:
                vector = None if self._question is None else self._question.vector
                self._changed = await changed(tx, self._caller, self._query, vector, self._space.model)
            there = await as_then(tx, self._caller, ids, as_of)
            # The tokens of what was rewritten are those of another text.
            self._looked_at |= {hit.id for hit in self._changed.words} - {hit.id for hit in self._changed.dense}
        # The index may still hold what was put away a moment ago.
        there -= {hit.id for hit in self._changed.dense} | {hit.id for hit in self._changed.words}
        near = [*(hit for hit in dense if hit.id in there), *self._changed.dense]
        said = [*(hit for hit in words if hit.id in there), *self._changed.words]
        near.sort(key=lambda hit: -hit.score)
        return near, sorted(said, key=lambda hit: (hit.partial, -hit.score))

    async def _readable(self, dense: list[Hit], words: list[LexicalHit]) -> tuple[list[Hit], list[LexicalHit]]:
        """Those of both lists that the caller may read: a place in a list tells how many stand before it."""
        ids = [hit.id for hit in dense] + [hit.id for hit in words]
        async with self._database.statement() as tx:
            may_read = await readable(tx, self._caller, ids)
        return [hit for hit in dense if hit.id in may_read], [hit for hit in words if hit.id in may_read]

    def explanation(self, *, answered: bool) -> AnswerExplanation:
        """What the question was taken for. `answered`: the model and the index did answer in the last round."""
        meant = self.asked if answered else None
        last = self.round or Round([], [])
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
        """Where to look: with the rules of the app, and the ids of what the query is narrowed to, if these are few and
        the index cannot tell."""
        text, caller = self._query.text, self._caller
        if (guess := self._guess()) is not None and looks(text, guess):
            # What the model is asked depends on the rules: both are looked up at once, as if nobody had changed them.
            async with self._database.statement() as tx:
                look = await focused_for(tx, text, guess, None if caller.owner else caller.app_id)
            if caller.owner or self._rulebook.still(caller, look.revision) is guess.rules:
                self._focused = look.text
                return guess
        return self._where(*await asyncio.gather(self._rules(), matching(self._database, caller, self._query)))

    def _guess(self) -> LexicalFilter | None:
        """Where to look, by rules that may have changed; None if that cannot be guessed."""
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

    async def _understood(self) -> tuple[Question, str]:
        """The question without its common words, as the model understands it, and what that is. The tokens are those of
        the whole: a word that is common among all memories may tell those apart that are near."""
        meant = await self._meant()
        if self._whole is None:
            return await self._space.query(meant), meant
        # Mostly they are the same, so that the model works while rules and common words are looked up.
        whole = await self._whole
        self._words = whole.tokens
        return whole if meant == self._query.text else await self._space.query(meant), meant

    def _embedding(self) -> asyncio.Future[Question]:
        """What the model makes of the whole question; that it failed is told to whoever waits for it, if anybody."""
        asked = asyncio.ensure_future(self._space.query(self._query.text))
        asked.add_done_callback(lambda done: done.cancelled() or done.exception())
        return asked

    async def _meant(self) -> str:
        where = await self._narrowed
        if self._focused is not None:
            return self._focused
        async with self._database.statement() as tx:
            return await focused(tx, self._query.text, where)

    async def _written(self, then: Period) -> list[LexicalHit]:
        """What was written at a time and holds a word of the query, be it among the best or not."""
        where = await self._narrowed
        where = replace(where, since=where.since or then.start, until=where.until or then.end)
        async with self._database.statement() as tx:
            return await lexical.search(tx, self._query.text, where, CANDIDATES, enough=0)


def _together(words: list[LexicalHit], more: list[LexicalHit]) -> list[LexicalHit]:
    """Both lists as one, best first; what only parts of words match stays behind."""
    if not more:
        return words
    known = {hit.id for hit in words}
    return sorted([*words, *(hit for hit in more if hit.id not in known)], key=lambda hit: (hit.partial, -hit.score))


@by_shape
def _readable(owner: bool, default: Default, shape: Shape) -> ColumnElement[bool]:
    """What callers of one sort may read of what a query asks for: one object, so that statements with it are cached."""
    return and_(readable_by(Caller.anyone(owner=owner, default=default), Memory), conditions(shape))

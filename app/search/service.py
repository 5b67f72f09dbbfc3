"""Searching: candidates by meaning and by words, fused, read back through `readable_by`, and logged."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, and_

from app.access import journal
from app.access.caller import Caller, Default
from app.access.journal import Event
from app.access.rates import Rates
from app.access.readable import readable_by
from app.access.rulebook import Rulebook
from app.access.rules import ALL, Rules
from app.config import Settings
from app.database import Database
from app.embeddings.port import EmbedderUnavailable
from app.index.port import Filter, Hit, IndexUnavailable
from app.index.space import Spaces
from app.memories import checks
from app.memories.injection import LABEL
from app.memories.models import Memory
from app.search import lexical
from app.search.fusion import Fused, fuse
from app.search.lexical import LexicalFilter, LexicalHit
from app.search.readback import conditions, parameters, readback
from app.search.schemas import Method, ScoreParts, SearchAnswer, SearchQuery, SearchResult

log = logging.getLogger(__name__)

NO_INDEX = "Using text search (vector store unavailable)"
NO_EMBEDDER = "Using text search (embedder unavailable)"

CANDIDATES = 50
"""Candidates that each arm is asked for at first, or three times the limit if that is more."""

SPARE = 5
"""Candidates that are read back beyond the limit at first, for those that the caller may not read."""

WIDENING = 4
"""How many times more candidates are asked for while the caller may read too few of those that were found."""


FLOOD = 500
"""Candidates beyond which no more are asked for because labelled memories fill the lists: who plants a memory must not
make every search read everything."""


@dataclass(frozen=True, slots=True)
class _Dense:
    """What the dense arm found; `note` says why it found nothing when it could not look."""

    hits: list[Hit]
    note: str | None = None


@dataclass(slots=True)
class _Found:
    """What a search has read back so far: rows that the caller may read by id, and every id that was `tried`.

    `fused` are the scores by id. What is labelled is known, and lowered, only when it has been read back.
    """

    limit: int
    logged: bool = False
    tried: set[UUID] = field(default_factory=set)
    rows: dict[UUID, Any] = field(default_factory=dict)
    fused: dict[UUID, Fused] = field(default_factory=dict)

    def best(self) -> list[Fused]:
        """The best of what was read back, by the scores that they end up with, in order."""
        hits = [self.fused[id_].lowered() if LABEL in row.labels else self.fused[id_] for id_, row in self.rows.items()]
        return sorted(hits, key=lambda hit: -hit.score)[: self.limit]

    def lowered(self) -> list[Fused]:
        """Those of the best that were lowered."""
        if not any(LABEL in row.labels for row in self.rows.values()):
            return []
        return [hit for hit in self.best() if hit.penalty]

    def wanted(self, score: float) -> int:
        """How many more may be among the best, if none has a higher score than this before it is lowered."""
        return max(0, self.limit - len(self.rows)) + sum(hit.score < score for hit in self.lowered())

    @property
    def enough(self) -> bool:
        """Whether there are as many as were asked for."""
        return len(self.rows) >= self.limit

    def doubtful(self, words: list[LexicalHit], *, cut: bool) -> bool:
        """Whether lowered ones may be among the best only because they fill the lists; `cut`: more hold the words."""
        if not (lowered := self.lowered()):
            return False
        unlisted = min(self.fused[hit.id].lexical for hit in words) if cut else 0.0
        return len(lowered) == self.limit or lowered[-1].score < unlisted


class Search:
    """Finds memories."""

    def __init__(self, database: Database, spaces: Spaces, settings: Settings, rates: Rates) -> None:
        self._database = database
        self._spaces = spaces
        self._settings = settings
        self._rates = rates
        self._rulebook = Rulebook()
        self.answered: Counter[tuple[Method, str | None]] = Counter()
        """Answers since the start, by method and note."""

    async def search(self, caller: Caller, query: SearchQuery) -> SearchAnswer:
        """The memories nearest to the query that the caller may read, best first, each access logged.

        A caller who may read k relevant memories gets k of them, however many others had to be passed over. One that
        is labelled as giving orders to assistants is put lower, and displaces no better one. Without the embedder or
        the index the answer comes from text search, and says so.

        Raises:
            Invalid: the query or a filter cannot be used.
            TooMany: an assistant's app searches too often.
            Unavailable: Postgres does not answer.
        """
        caller.may_read()
        limit = self._checked(query)
        pace = asyncio.ensure_future(self._rates.search(caller))
        reached = caller.reached(query.namespaces)
        if reached is None:
            await pace
            async with self._database.statement() as tx:
                await journal.record(tx, caller, Event.MEMORY_SEARCH)
            return SearchAnswer(results=[], search_method=Method.HYBRID)
        query = replace(query, namespaces=reached)
        rules = asyncio.ensure_future(self._rules(caller))
        asked = max(CANDIDATES, 3 * limit)
        strict = False
        found = _Found(limit)
        while True:
            dense, words, _ = await asyncio.gather(
                self._dense(caller, query, asked, rules),
                self._lexical(caller, query, asked, rules, enough=limit, strict=strict),
                pace,
            )
            method = Method.LEXICAL if dense.note else Method.HYBRID
            ranked = fuse(dense.hits, words)
            # The scores of a round are relative to its lists, so those of the last round hold for all.
            found.fused |= {hit.id: hit for hit in ranked}
            await self._read(caller, query, ranked, method, found)
            exhausted = len(dense.hits) < asked and len(words) < asked
            sure = asked > FLOOD or not found.doubtful(words, cut=len(words) >= asked)
            if (found.enough and sure) or (exhausted and (strict or all(hit.id in found.rows for hit in words))):
                break
            asked *= WIDENING
            strict = True
        if not found.logged:
            async with self._database.statement() as tx:
                await journal.record(tx, caller, Event.MEMORY_SEARCH, detail={"method": method})
        self.answered[method, dense.note] += 1
        results = [_result(found.rows[hit.id], hit) for hit in found.best()]
        return SearchAnswer(results=results, search_method=method, note=dense.note)

    async def _read(
        self, caller: Caller, query: SearchQuery, ranked: list[Fused], method: Method, found: _Found
    ) -> None:
        """Read hits that were not tried yet back, best first, until none of the rest can be among the best."""
        hits = [(hit.id, hit.score) for hit in ranked if hit.id not in found.tried]
        start, count = 0, found.limit + SPARE
        while start < len(hits) and (wanted := found.wanted(hits[start][1])):
            some = hits[start : start + count]
            async with self._database.statement() as tx:
                rows = await readback(tx, caller, query, some, limit=wanted, method=method)
            found.logged = True
            found.rows |= {row.id: row for row in rows}
            # The statement stopped at the last of as many as it was asked for.
            tried = rows[-1].position if len(rows) == wanted else len(some)
            found.tried.update(id_ for id_, _ in some[:tried])
            start, count = start + tried, len(hits)

    async def _rules(self, caller: Caller) -> Rules:
        if caller.owner:
            return ALL
        async with self._database.statement() as tx:
            return await self._rulebook.of(tx, caller)

    async def _lexical(
        self,
        caller: Caller,
        query: SearchQuery,
        limit: int,
        known: Awaitable[Rules],
        *,
        enough: int,
        strict: bool,
    ) -> list[LexicalHit]:
        """The best by words. What is decided neither by rules nor by the filters that are bound here is passed over in
        the database only when `strict`, or when a filter would let few through: reading back passes it over anyway."""
        rules = await known
        where = LexicalFilter(
            caller.user_id,
            namespaces=query.namespaces,
            thread=query.threads[0] if len(query.threads) == 1 else None,
            kinds=query.kinds,
            apps=query.app_ids,
            since=query.created_from,
            until=query.created_to,
            rules=rules,
        )
        async with self._database.statement() as tx:
            if strict or query.categories or len(query.threads) > 1:
                readable, binds = _readable(caller.owner, caller.default), caller.parameters | parameters(query)
                return await lexical.search(
                    tx, query.text, where, limit, enough=enough, readable=readable, parameters=binds
                )
            return await lexical.search(tx, query.text, where, limit, enough=enough)

    async def _dense(self, caller: Caller, query: SearchQuery, limit: int, known: Awaitable[Rules]) -> _Dense:
        space = self._spaces.serving
        try:
            vector = await space.query(query.text)
            rules = await known
            where = Filter(
                caller.user_id, namespaces=query.namespaces, kinds=query.kinds, apps=query.app_ids, rules=rules
            )
            return _Dense(await space.search(vector, where, limit))
        except EmbedderUnavailable as error:
            log.debug("no dense candidates: %s", error)
            return _Dense([], NO_EMBEDDER)
        except IndexUnavailable as error:
            log.debug("no dense candidates: %s", error)
            return _Dense([], NO_INDEX)

    def _checked(self, query: SearchQuery) -> int:
        limits = self._settings.limits
        checks.text(query.text, "query", limits.query, "limits.query")
        checks.narrowing(query, limits)
        if query.limit is None:
            return self._settings.search.limit
        return checks.between(query.limit, "limit", 1, self._settings.search.max_limit)


@cache
def _readable(owner: bool, default: Default) -> ColumnElement[bool]:
    """What callers of one sort may read of what a query asks for: one object, so that statements with it are cached."""
    nobody = Caller(UUID(int=0), "", UUID(int=0), "", owner=owner, default=default)
    return and_(readable_by(nobody, Memory), conditions())


def _result(row: Any, hit: Fused) -> SearchResult:
    """A row read back as a result. The database has checked it already."""
    return SearchResult(
        id=row.id,
        memory=row.content,
        hash=row.hash,
        created_at=row.created_at,
        updated_at=row.updated_at,
        score=hit.score,
        parts=ScoreParts(dense=hit.dense, lexical=hit.lexical, cosine=hit.cosine, bm25=hit.bm25, penalty=hit.penalty),
        metadata=row.metadata_,
        categories=row.categories,
        namespace=row.namespace,
        thread_id=row.thread_id,
        kind=row.kind,
        app_name=row.app_name,
        labels=row.labels,
    )

"""Searching: candidates by meaning and by words, fused, read back through `readable_by`, and logged."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable
from dataclasses import dataclass, field
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
from app.errors import Invalid
from app.index.port import Filter, Hit, IndexUnavailable
from app.index.space import Spaces
from app.memories import checks
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


@dataclass(frozen=True, slots=True)
class _Dense:
    """What the dense arm found; `note` says why it found nothing when it could not look."""

    hits: list[Hit]
    note: str | None = None


@dataclass(slots=True)
class _Found:
    """What a search has read back so far: rows that the caller may read by id, and every id that was `tried`."""

    limit: int
    logged: bool = False
    tried: set[UUID] = field(default_factory=set)
    rows: dict[UUID, Any] = field(default_factory=dict)

    @property
    def enough(self) -> bool:
        return len(self.rows) >= self.limit


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

        A caller who may read k relevant memories gets k of them, however many others had to be passed over. Without
        the embedder or the index the answer comes from text search, and says so.

        Raises:
            Invalid: the query or a filter cannot be used.
            Unavailable: Postgres does not answer.
        """
        caller.may_read()
        limit = self._checked(query)
        if caller.principal.assistant:
            await self._rates.search(str(caller.app_id))
        rules = asyncio.ensure_future(self._rules(caller))
        asked = max(CANDIDATES, 3 * limit)
        strict = False
        found = _Found(limit)
        fused: dict[UUID, Fused] = {}
        while True:
            dense, words = await asyncio.gather(
                self._dense(caller, query, asked, rules),
                self._lexical(caller, query, asked, rules, enough=limit, strict=strict),
            )
            method = Method.LEXICAL if dense.note else Method.HYBRID
            ranked = fuse(dense.hits, words)
            # The scores of a round are relative to its lists, so those of the last round hold for all.
            fused |= {hit.id: hit for hit in ranked}
            await self._read(caller, query, ranked, method, found)
            exhausted = len(dense.hits) < asked and len(words) < asked
            if found.enough or (exhausted and (strict or all(hit.id in found.rows for hit in words))):
                break
            asked *= WIDENING
            strict = True
        if not found.logged:
            async with self._database.statement() as tx:
                await journal.record(tx, caller, Event.MEMORY_SEARCH, detail={"method": method})
        best = sorted((fused[id_] for id_ in found.rows), key=lambda hit: -hit.score)
        self.answered[method, dense.note] += 1
        results = [_result(found.rows[hit.id], hit) for hit in best]
        return SearchAnswer(results=results, search_method=method, note=dense.note)

    async def _read(
        self, caller: Caller, query: SearchQuery, fused: list[Fused], method: Method, found: _Found
    ) -> None:
        """Read hits that were not tried yet back, best first, until enough may be read."""
        hits = [(hit.id, hit.score) for hit in fused if hit.id not in found.tried]
        start, count = 0, found.limit + SPARE
        while start < len(hits) and not found.enough:
            some = hits[start : start + count]
            missing = found.limit - len(found.rows)
            async with self._database.statement() as tx:
                rows = await readback(tx, caller, query, some, limit=missing, method=method)
            found.logged = True
            found.rows |= {row.id: row for row in rows}
            found.tried.update(id_ for id_, _ in some)
            start, count = start + count, len(hits)

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
            namespaces=query.namespaces or caller.principal.namespaces or (),
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
        namespaces = query.namespaces or caller.principal.namespaces or ()
        try:
            vector = await space.query(query.text)
            rules = await known
            where = Filter(caller.user_id, namespaces=namespaces, kinds=query.kinds, apps=query.app_ids, rules=rules)
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
        for part in ("namespaces", "threads", "kinds", "categories"):
            for value in getattr(query, part):
                checks.name(value, part, limits)
        for part in ("created_from", "created_to"):
            moment = getattr(query, part)
            if moment is not None and moment.tzinfo is None:
                raise Invalid(part, "must carry an offset from UTC, such as 2026-01-31T12:00:00Z")
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
        parts=ScoreParts(dense=hit.dense, lexical=hit.lexical, cosine=hit.cosine, bm25=hit.bm25),
        metadata=row.metadata_,
        categories=row.categories,
        namespace=row.namespace,
        thread_id=row.thread_id,
        kind=row.kind,
        app_name=row.app_name,
    )

"""The search service: finds candidates by meaning and by words, fuses them, reads them back through `readable_by`, and
logs the access."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from openmemory.access.rate_limits import RateLimiter
from openmemory.access.rule_cache import RuleCache
from openmemory.audit import audit_log
from openmemory.audit.audit_log import AuditAction
from openmemory.config.settings import Settings
from openmemory.content_policy.injection import LABEL, anywhere, instructs
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.index.space import Spaces
from openmemory.memories import validation
from openmemory.search import periods
from openmemory.search.bm25 import SLOTS
from openmemory.search.candidates import CANDIDATES, Retrieval, SearchResources
from openmemory.search.conflicts import conflicts
from openmemory.search.explanation import AnswerExplanation, Arm, RerankedBy, SearchRound, explained, times_read
from openmemory.search.fusion import Fused
from openmemory.search.periods import Period, names_a_time
from openmemory.search.readback import readback
from openmemory.search.reranking import NO_RERANKER, Reranked, Reranker, RerankerUnavailable, reranked
from openmemory.search.results import ReadRows
from openmemory.search.schemas import Method, ScoreParts, SearchAnswer, SearchQuery, SearchResult
from openmemory.search.spelling import lexemes
from openmemory.search.time_only import memories_written_at

log = logging.getLogger(__name__)

SPARE = 5
"""Extra candidates in the first read-back, in place of those that the caller may not read."""

WIDENING = 4
"""The factor by which the number of candidates grows while the caller may read too few of those found."""

MANY_WORDS = f"The query is long: at most its {SLOTS[-1]} rarest words are looked for"
MANY_TIMES = f"The query names many times: only the first {periods.MOST} words for a time are read"

EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""The earliest time that `as_of` accepts."""

FLOOD = 500
"""The candidate count above which flagged memories in the lists no longer widen the search. Otherwise an attacker who
plants memories could make every search read everything."""


class Search:
    """Finds memories."""

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        settings: Settings,
        rates: RateLimiter,
        reranker: Reranker | None = None,
    ) -> None:
        self._reranker = reranker
        self._database = database
        self._settings = settings
        self._rates = rates
        self._means = SearchResources(database, spaces, settings, RuleCache())
        self.answered: Counter[tuple[Method, str | None]] = Counter()
        """The number of answers since the start, by method and note."""

    async def search(self, caller: Caller, query: SearchQuery) -> SearchAnswer:
        """Returns the memories nearest to the query that the caller may read, best first, and logs each access.

        A caller who may read k relevant memories gets k of them, no matter how many others are skipped. A memory that
        is flagged as a prompt injection ranks lower and does not displace a better one. Without the embedder or the
        index, the answer comes from text search and says so. A query that contains only a time returns the memories
        written then, newest first.

        Raises:
            Invalid: the query or a filter cannot be used.
            TooMany: an assistant's app searches too often.
            Unavailable: Postgres does not answer.
        """
        caller.may_read()
        limit = self._checked(query)
        pace = asyncio.ensure_future(self._rates.search(caller))
        if query.as_of is not None:
            query = _earlier(query, query.as_of)
        reached = caller.reached(query.namespaces)
        if reached is None:
            await pace
            async with self._database.statement() as tx:
                await audit_log.record(tx, caller, AuditAction.MEMORY_SEARCH)
            nothing = SearchAnswer(results=[], search_method=Method.HYBRID)
            if query.explain:
                nothing.explanation = _unranked(query)
            return nothing
        query = replace(query, namespaces=reached)
        times: list[Period] = []
        cut = [MANY_WORDS] if lexemes(query.text) > SLOTS[-1] else []
        if names_a_time(query.text):
            read, _ = await asyncio.gather(
                asyncio.to_thread(periods.read, query.text, query.as_of or datetime.now(UTC)), pace
            )
            if read.alone and (answer := await self._then(caller, query, read.times, limit)) is not None:
                return answer
            times = read.times
            cut += [MANY_TIMES] if read.cut else []
        arms = Retrieval(self._means, caller, query, times)
        asked = max(CANDIDATES, 3 * limit)
        strict = False
        found = ReadRows(limit if self._reranker is None else max(limit, self._reranker.top_n))
        with closing(arms):
            while True:
                dense, words, _ = await asyncio.gather(
                    arms.dense(asked), arms.words(asked, enough=limit, strict=strict), pace
                )
                method = Method.HYBRID if dense.answered else Method.LEXICAL
                ranked = await arms.ranked(dense.hits, words)
                found.ranked(ranked, arms.round)
                await self._read(caller, query, ranked, method, found)
                below = arms.floor is not None and bool(dense.hits) and dense.hits[-1].score < arms.floor
                exhausted = (below or len(dense.hits) < asked) and len(words) < asked
                sure = asked > FLOOD or not found.doubtful(words, cut=len(words) >= asked)
                if (found.enough and sure) or (exhausted and (strict or all(hit.id in found.rows for hit in words))):
                    break
                asked *= WIDENING
                strict = True
        if not found.logged:
            await self._log(caller, method)
        reranked, note = await self._read_again(query, found)
        answer = self._answer(found, method, reranked.hits[:limit], reranked.arms)
        self.answered[method, dense.note or note] += 1
        answer.note = "; ".join(said for said in (dense.note, note, *cut) if said) or None
        if query.explain:
            answer.explanation = arms.explanation(answered=dense.answered)
            if self._reranker is not None and note is None:
                answer.explanation.reranker = RerankedBy(self._reranker.name, self._reranker.weight, len(reranked.arms))
        return answer

    async def _read_again(self, query: SearchQuery, found: ReadRows) -> tuple[Reranked, str | None]:
        """The best hits in the order of the reranker if there is one and it answers. Otherwise the hits in their
        original order, and the reason."""
        hits, reranker = found.best(), self._reranker
        if reranker is None or not hits:
            return Reranked(hits, {}), None
        texts = [found.rows[hit.id].content for hit in hits[: reranker.top_n]]
        try:
            scores = await reranker.scores(query.text, texts)
        except RerankerUnavailable as error:
            log.debug("not reranked: %s", error)
            return Reranked(hits, {}), NO_RERANKER
        flagged = (hit.id for hit in hits if hit.penalty)
        return reranked([found.fused[hit.id] for hit in hits], scores, reranker.weight, flagged), None

    def _answer(
        self, found: ReadRows, method: Method, best: Sequence[Fused], arms: Mapping[UUID, Arm] | None = None
    ) -> SearchAnswer:
        """Builds the answer from the hits and the rows read for them, with explanations if there are any."""
        results = []
        for hit in best:
            results.append(_result(found.rows[hit.id], hit))
            if (last := found.rounds.get(hit.id)) is not None:
                results[-1].explanation = explained(hit, last, (arms or {}).get(hit.id))
        return SearchAnswer(results, method, conflicts=conflicts(results))

    async def _log(self, caller: Caller, method: Method) -> None:
        """Logs a search that read nothing. A search that read something was logged with the read."""
        async with self._database.statement() as tx:
            await audit_log.record(tx, caller, AuditAction.MEMORY_SEARCH, detail={"method": method})

    async def _then(self, caller: Caller, query: SearchQuery, times: list[Period], limit: int) -> SearchAnswer | None:
        """Returns the memories written at a time, newest first, or None if there are none.

        All of them match the question equally well, so no retrieval arm runs. If there are none, a memory may still
        mention that time in its text.
        """
        async with self._database.statement() as tx:
            some = await memories_written_at(tx, caller, query, times, limit)
        if not some:
            return None
        found = ReadRows(limit)
        hits = [Fused(one.id, 1.0, 0.0, 0.0, None, None, time=1.0) for one in some]
        last = SearchRound([], [], moments=dict(some), times=times, then=1.0) if query.explain else None
        found.ranked(hits, last)
        await self._read(caller, query, hits, Method.TIME, found)
        if not found.logged:
            await self._log(caller, Method.TIME)
        self.answered[Method.TIME, None] += 1
        answer = self._answer(found, Method.TIME, found.best())
        if query.explain:
            answer.explanation = _unranked(query, times)
        return answer

    async def _read(
        self, caller: Caller, query: SearchQuery, ranked: list[Fused], method: Method, found: ReadRows
    ) -> None:
        """Reads back hits that were not tried yet, best first, until none of the rest can be among the best."""
        hits = [(hit.id, hit.score) for hit in ranked if hit.id not in found.tried]
        start, count = 0, found.limit + SPARE
        while start < len(hits) and (wanted := found.wanted(hits[start][1])):
            some = hits[start : start + count]
            rows = await self._readback(caller, query, some, limit=wanted, method=method)
            found.logged = True
            if query.as_of is not None:
                rows = await asyncio.to_thread(self._labelled, rows)
            found.rows |= {row.id: row for row in rows}
            # The statement stopped as soon as it had the requested number of rows.
            tried = rows[-1].position if len(rows) == wanted else len(some)
            found.tried.update(id_ for id_, _ in some[:tried])
            start, count = start + tried, len(hits)

    @retry_on_conflict
    async def _readback(
        self, caller: Caller, query: SearchQuery, some: list[tuple[UUID, float]], *, limit: int, method: Method
    ) -> Sequence[Any]:
        async with self._database.statement() as tx:
            return await readback(tx, caller, query, some, limit=limit, method=method)

    def _labelled(self, rows: Sequence[Any]) -> list[Any]:
        """Labels rows whose text may be an earlier version. The stored labels belong to the current text."""
        if self._settings.capture.injection == "store":
            return [row._replace(labels=[]) for row in rows]
        orders = (instructs(row.content) or anywhere(row.metadata_) for row in rows)
        return [row._replace(labels=[LABEL] if told else []) for row, told in zip(rows, orders, strict=True)]

    def _checked(self, query: SearchQuery) -> int:
        limits = self._settings.limits
        validation.text(query.text, "query", limits.query, "limits.query")
        validation.narrowing(query, limits)
        if query.limit is None:
            return self._settings.search.limit
        return validation.between(query.limit, "limit", 1, self._settings.search.max_limit)


def _unranked(query: SearchQuery, times: Sequence[Period] = ()) -> AnswerExplanation:
    """The explanation of an answer for which no retrieval arm ran."""
    return AnswerExplanation(
        embedded=None,
        left_out=[],
        dense_share=None,
        floor=None,
        times=times_read(times),
        candidates={"words": 0, "meaning": 0},
        recency=None,
        as_of=query.as_of,
    )


def _earlier(query: SearchQuery, as_of: datetime) -> SearchQuery:
    """Limits a query with `as_of` to memories created no later than that time."""
    as_of = as_of.replace(tzinfo=UTC) if as_of.tzinfo is None else as_of
    if not EARLIEST <= as_of <= datetime.now(UTC):
        raise Invalid("as_of", "must lie between 1970 and now")
    as_of = as_of.astimezone(UTC)
    until = as_of if query.created_to is None else min(query.created_to, as_of)
    return replace(query, as_of=as_of, created_to=until)


def _result(row: Any, hit: Fused) -> SearchResult:
    """Converts a row that was read back to a result. The database has already validated it."""
    return SearchResult(
        id=row.id,
        memory=row.content,
        hash=row.hash,
        created_at=row.created_at,
        updated_at=row.updated_at,
        score=hit.score,
        parts=ScoreParts(
            dense=hit.dense,
            lexical=hit.lexical,
            beside=hit.beside,
            thread=hit.thread,
            time=hit.time,
            cosine=hit.cosine,
            bm25=hit.bm25,
            penalty=hit.penalty,
            recency=hit.recency,
            reranked=hit.reranked,
            late=hit.late,
        ),
        metadata=row.metadata_,
        categories=row.categories,
        namespace=row.namespace,
        thread_id=row.thread_id,
        kind=row.kind,
        app_name=row.app_name,
        labels=row.labels,
    )

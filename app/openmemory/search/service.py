"""The search service: finds candidates by meaning and by words, ranks them and reads them back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import NamedTuple
from uuid import UUID

from openmemory.access.rate_limits import RateLimiter
from openmemory.access.rule_cache import RuleCache
from openmemory.config.settings import Settings
from openmemory.database.engine import Database, Tx
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller
from openmemory.identity.names import storable
from openmemory.index.space import Spaces
from openmemory.memories import validation
from openmemory.search.answers.empty import (
    date_note,
    empty_answer,
    join_notes,
    no_memory,
    note_of,
    query_excerpt,
    tally,
    times_text,
    undated_answer,
)
from openmemory.search.answers.explanation import SearchRound
from openmemory.search.answers.overview import BROAD, overview_answer
from openmemory.search.answers.readback import log_search, read_best, read_newer, readback
from openmemory.search.answers.results import ReadRows, passage_answer, results_without_scores, search_answer
from openmemory.search.candidates.lexical import LexicalHit
from openmemory.search.candidates.query_analysis import MAX_LEXEMES
from openmemory.search.candidates.retrieval import (
    CANDIDATES,
    Dense,
    Lookups,
    contains_literally,
    dense_candidates,
    lexical_candidates,
    lists_to_rank,
)
from openmemory.search.candidates.rows import CandidateRow, candidate_rows
from openmemory.search.candidates.time_only import memories_that_name, memories_written_at
from openmemory.search.context import SearchContext, SearchResources, search_context
from openmemory.search.corpus import PASSAGES, has_passages
from openmemory.search.query import periods
from openmemory.search.query.periods import NamedTimes, names_a_time
from openmemory.search.query.text import has_words, is_broad, lexemes
from openmemory.search.ranking.features import Candidate, QuestionParts
from openmemory.search.ranking.late_interaction import TextTokens, late_scores
from openmemory.search.ranking.linear_model import Ranked, candidates, newest_first, ranked
from openmemory.search.ranking.recency import recency_of
from openmemory.search.ranking.reranking import Reranker, rerank
from openmemory.search.schemas import (
    CorpusName,
    Method,
    PassageAnswer,
    RerankedBy,
    SearchAnswer,
    SearchQuery,
    SearchResult,
)
from openmemory.search.sql.as_of import time_of, unchanged_since
from openmemory.sources.symbols import normal

log = logging.getLogger(__name__)

FIRST_RANKED = 80
"""The number of candidates that are ranked in the first round, of `CANDIDATES` of each arm. More add next to nothing to
the best: on the turns of LoCoMo, recall@10 is .817 with 80, .819 with all, and .809 with 60."""

WIDENING = 4
"""The factor by which the number of candidates grows while the caller may read too few of those found."""

LONG_QUERY_NOTE = f"The query is long: at most its {MAX_LEXEMES} rarest words are looked for"
MANY_TIMES_NOTE = f"The query names many times: only the first {periods.MAX_TIME_WORDS} words for a time are read"

FLOOD = 500
"""The candidate count above which flagged memories in the lists no longer widen the search. Otherwise an attacker who
plants memories could make every search read everything."""


UNREAD_NOTE = "{texts} for the language model to read, and cannot be found until then"

Unread = Callable[[Tx, Caller, Sequence[str]], Awaitable[int]]
"""Counts the texts in some namespaces that the caller may see and that no memory holds yet."""

NO_PASSAGE = "No passage that you may read matches {query}"


class FoundRows(NamedTuple):
    """The rows that a search has read, its method, what is `missing`, its last round, and the embedded text."""

    rows: ReadRows
    method: Method
    missing: str | None
    last: SearchRound
    embedded_text: str | None


class Search:
    """Finds memories and passages."""

    def __init__(
        self,
        database: Database,
        spaces: Spaces,
        settings: Settings,
        rates: RateLimiter,
        reranker: Reranker | None = None,
        *,
        unread: Unread | None = None,
    ) -> None:
        """`unread` counts the texts that no memory holds yet. Answers that find nothing name their number."""
        self._resources = SearchResources(database, spaces, settings, RuleCache())
        self._settings = settings
        self._rates = rates
        self._reranker = reranker
        self._unread = unread
        self.answered: Counter[tuple[Method, str | None]] = Counter()
        """The number of answers since the start, by method and note."""

    async def search(self, caller: Caller, query: SearchQuery) -> SearchAnswer:
        """Returns the memories nearest to the query that the caller may read, best first, and logs each access.

        A caller who may read k relevant memories gets k of them, no matter how many others are skipped. Memories that
        score below `weights.MIN_SCORE` are left out, unless they contain the query as it is written: a limit is a
        limit, not an aim. A memory that is flagged as a prompt injection ranks lower and does not displace a better
        one. Without the embedder or the index, the answer comes from text search and states that. A query that contains
        only a time returns the memories written then, newest first, or those that name that time. A broad query returns
        an overview. An answer without results states the query terms, and the number of memories.

        Raises:
            Invalid: the query or a filter cannot be used.
            TooMany: an assistant's app searches too often.
            Unavailable: PostgreSQL does not answer.
        """
        return await self._search(caller, query, partial(self._rates.search, caller))

    async def _search(self, caller: Caller, query: SearchQuery, count: Callable[[], Awaitable[None]]) -> SearchAnswer:
        caller.may_read()
        validation.text(query.text, "query", self._settings.limits.query, "limits.query")
        _refuse_filters_of_passages(query)
        query, within_reach = self._check_query(caller, query)
        pace = asyncio.ensure_future(count())
        if not within_reach:
            await pace
            answer = await no_memory(search_context(self._resources, caller, query), Method.HYBRID)
            return self._count_answer(await self._with_unread(answer, caller, query))
        times = NamedTimes([], False)
        if names_a_time(query.text):
            now = (query.as_of or datetime.now(UTC)).astimezone(caller.timezone)
            reading = asyncio.to_thread(periods.read, query.text, now)
            times, _ = await asyncio.gather(reading, pace)
        context = search_context(self._resources, caller, query, times.times)
        if times.alone:
            return self._count_answer(await self._by_time(context))
        if is_broad(query.text) and not await contains_literally(context):
            await pace
            return self._count_answer(await overview_answer(context, BROAD))
        notes = [LONG_QUERY_NOTE] if lexemes(query.text) > MAX_LEXEMES else []
        return await self._best_answer(context, pace, [*notes, MANY_TIMES_NOTE] if times.cut else notes)

    def at_most(self, limit: int) -> int:
        """This limit, or the largest one that a search may have."""
        return min(limit, self._settings.search.max_limit)

    async def over(self, caller: Caller, query: SearchQuery, corpus: CorpusName) -> SearchAnswer:
        """Searches memories, passages, or both side by side: `SearchAnswer.passages` has the passages.

        Raises:
            Invalid, TooMany, Unavailable: as `search` and `passages` do.
        """
        if corpus == "memories":
            return await self.search(caller, query)
        if corpus == "both":
            answer, passages = await self.both(caller, query, query.limit)
        else:
            passages = await self.passages(caller, query)
            answer = SearchAnswer([], passages.search_method, passages.note)
        answer.passages = passages
        return answer

    async def both(
        self, caller: Caller, query: SearchQuery, passages: int | None, *, explain: bool = False
    ) -> tuple[SearchAnswer, PassageAnswer]:
        """Searches memories and at most this many passages at once. It counts as one search. `explain`: explains the
        scores of the memories.

        Raises:
            Invalid, TooMany, Unavailable: as `search` and `passages` do.
        """
        # These checks come first. If one search were refused later, the other would run on for nobody.
        caller.may_read()
        _refuse_filters_of_passages(query)
        _refuse_filters_of_memories(query)

        @cache
        def count_once() -> asyncio.Future[None]:
            return asyncio.ensure_future(self._rates.search(caller))

        return await asyncio.gather(
            self._search(caller, replace(query, explain=explain), count_once),
            self._passages(caller, replace(query, limit=passages), count_once),
        )

    async def read(self, caller: Caller, query: SearchQuery, ids: Sequence[UUID]) -> list[SearchResult]:
        """Returns the memories with these ids that match the filters of a query and that the caller may read, in order
        and without scores. Logs each access as one of this search, which the rate limit has counted before.

        Raises:
            Invalid: a filter cannot be used.
            Unavailable: PostgreSQL does not answer.
        """
        query, within_reach = self._check_query(caller, query)
        if not ids or not within_reach:
            return []
        context = search_context(self._resources, caller, query)
        scored_ids = [(id_, 0.0) for id_ in ids]
        return results_without_scores(await readback(context, scored_ids, limit=len(scored_ids), method=Method.HYBRID))

    async def overview(self, caller: Caller, query: SearchQuery) -> SearchAnswer:
        """Returns the most telling memories that match the filters of the query and that the caller may read, best
        first, and logs each access. Ignores the text of the query.

        They are important, recent and diverse. The note of the answer states how many memories there are.

        Raises:
            Invalid: a filter cannot be used.
            TooMany: an assistant's app searches too often.
            Unavailable: PostgreSQL does not answer.
        """
        caller.may_read()
        query, within_reach = self._check_query(caller, query)
        await self._rates.search(caller)
        context = search_context(self._resources, caller, query)
        answer = await (overview_answer(context) if within_reach else no_memory(context, Method.HYBRID))
        return self._count_answer(answer)

    async def _with_unread(self, answer: SearchAnswer, caller: Caller, query: SearchQuery) -> SearchAnswer:
        """Adds a note on the texts that could not be found because the language model has not read them yet."""
        if self._unread is not None:
            async with self._resources.database.statement() as tx:
                count = await self._unread(tx, caller, query.namespaces)
            if count:
                waiting = UNREAD_NOTE.format(texts="1 text waits" if count == 1 else f"{count:,} texts wait")
                answer.note = join_notes((answer.note, waiting))
        return answer

    def _count_answer(self, answer: SearchAnswer, missing: str | None = None) -> SearchAnswer:
        self.answered[answer.search_method, missing] += 1
        return answer

    async def passages(self, caller: Caller, query: SearchQuery) -> PassageAnswer:
        """Returns the passages nearest to the query that the caller may read, best first. The audit log lists them.

        They are found as memories are: by meaning and by words, with their neighbours in the thread.

        Raises:
            Invalid: the query or a filter cannot be used, or passages have no such field.
            TooMany: an assistant's app searches too often.
            Unavailable: PostgreSQL does not answer.
        """
        return await self._passages(caller, query, partial(self._rates.search, caller))

    async def _passages(
        self, caller: Caller, query: SearchQuery, count: Callable[[], Awaitable[None]]
    ) -> PassageAnswer:
        caller.may_read()
        validation.text(query.text, "query", self._settings.limits.query, "limits.query")
        _refuse_filters_of_memories(query)
        storable(query.below, "path")
        languages = tuple(validation.name(one, "language", self._settings.limits) for one in query.languages)
        symbol = normal(validation.name(query.symbol, "symbol", self._settings.limits)) if query.symbol else ""
        query = replace(query, languages=languages, symbol=symbol)
        query, within_reach = self._check_query(caller, query)
        within_reach = within_reach and await has_passages(self._resources.database, caller)
        pace = asyncio.ensure_future(count())
        if not within_reach:
            await pace
            await log_search(search_context(self._resources, caller, query, corpus=PASSAGES), Method.HYBRID)
            return PassageAnswer([], Method.HYBRID, NO_PASSAGE.format(query=query_excerpt(query.text)))
        times = NamedTimes([], False)
        if names_a_time(query.text):
            now = datetime.now(caller.timezone)
            times, _ = await asyncio.gather(asyncio.to_thread(periods.read, query.text, now), pace)
        context = search_context(self._resources, caller, query, times.times, PASSAGES)
        round_ = await self._retrieve(context, pace)
        if not round_.rows.rows:
            await log_search(context, round_.method)
            note = join_notes((round_.missing, NO_PASSAGE.format(query=query_excerpt(query.text))))
            return PassageAnswer([], round_.method, note)
        second = await rerank(self._reranker, query.text, round_.rows.best(), round_.rows.rows)
        answer = passage_answer(round_.rows, round_.method, second.hits[: context.limit])
        answer.note = join_notes((round_.missing, second.note))
        return answer

    async def _best_answer(self, context: SearchContext, pace: Awaitable[None], notes: Sequence[str]) -> SearchAnswer:
        """Answers with the best memories."""
        limit, reranker = context.limit, self._reranker
        read_rows, method, missing, last, embedded_text = await self._retrieve(context, pace)
        if not read_rows.rows:
            answer = await empty_answer(context, method, missing, last=last, embedded_text=embedded_text)
            answer.note = join_notes((answer.note, *notes))
            return self._count_answer(await self._with_unread(answer, context.caller, context.query), missing)
        second = await rerank(reranker, context.query.text, read_rows.best(), read_rows.rows)
        best, newer = await read_newer(context, second.hits[:limit], method, read_rows)
        answer = search_answer(
            context, read_rows, method, best, newer=newer, arms=second.arms, last=last, embedded_text=embedded_text
        )
        if answer.explanation is not None and reranker is not None and second.note is None:
            answer.explanation.reranker = RerankedBy(reranker.name, reranker.weight, len(second.arms))
        answer.note = join_notes((missing, second.note, await self._undated_note(context, answer), *notes))
        return self._count_answer(answer, missing or second.note)

    async def _undated_note(self, context: SearchContext, answer: SearchAnswer) -> str | None:
        """A note if no memory at all was written at the times that the query names."""
        moments = [result.created_at for result in answer.results]
        if not context.times or any(time.closeness(moment) == 1 for time in context.times for moment in moments):
            return None
        if await memories_written_at(replace(context, limit=1)):
            return None
        return note_of(date_note(context, await tally(context, with_times=True)))

    async def _retrieve(self, context: SearchContext, pace: Awaitable[None]) -> FoundRows:
        """Ranks what both arms find and reads back the best, with ever more candidates until there are enough."""
        limit, reranker = context.limit, self._reranker
        row_limit = limit if reranker is None else max(limit, reranker.top_n)
        read_rows = ReadRows(row_limit, bounded=not context.query.everything)
        width, strict = max(CANDIDATES, 2 * limit), False
        most: int | None = FIRST_RANKED * width // CANDIDATES
        with closing(Lookups(context)) as lookups:
            while True:
                dense, words, _ = await asyncio.gather(
                    dense_candidates(context, lookups, width),
                    lexical_candidates(context, lookups, width, strict=strict),
                    pace,
                )
                method = Method.HYBRID if dense.answered else Method.LEXICAL
                complete = len(dense.hits) < width and context.query.as_of is None
                hits, last = await rank(context, lookups, dense, words, complete=complete, most=most)
                read_rows.add_round(hits, last if context.query.explain else None)
                await read_best(context, hits, method, read_rows)
                below = context.floor is not None and bool(dense.hits) and dense.hits[-1].score < context.floor
                exhausted = (below or len(dense.hits) < width) and len(words) < width and not last.cut
                # Flagged texts may have taken the places of others.
                plain = sum(not hit.flagged for hit in hits)
                sure = width > FLOOD or plain >= limit or plain == len(hits)
                # Hits that the caller may not read may have taken the places of others, once.
                settled = read_rows.cut and (strict or last.whole)
                if (read_rows.enough and sure) or settled:
                    break
                if exhausted and (strict or all(hit.id in read_rows.rows for hit in words)):
                    break
                width, strict, most = width * WIDENING, True, None
            is_embedded = dense.answered and has_words(context.query.text)  # signs are not embedded
            embedded_text = (await lookups.question).text if is_embedded else None
        return FoundRows(read_rows, method, dense.note, last, embedded_text)

    async def _by_time(self, context: SearchContext) -> SearchAnswer:
        """Returns the memories written at the times that the query names, newest first, or else those whose text names
        that month, day or year.

        All of them match the question equally well, so no retrieval arm runs.
        """
        some = await memories_written_at(context)
        note = None
        if not some:
            some = await memories_that_name(context)
            note = (
                f"Nothing is dated {times_text(context.times, context.caller.timezone)}; the texts name that time"
                if some
                else None
            )
        if not some:
            answer = await undated_answer(context)
            return await self._with_unread(answer, context.caller, context.query)
        read_rows = ReadRows(context.limit)
        read_rows.add_round(
            hits := [Ranked(one.id, 1.0) for one in some], SearchRound() if context.query.explain else None
        )
        await read_best(context, hits, Method.TIME, read_rows)
        if not read_rows.rows:
            await log_search(context, Method.TIME)
        answer = search_answer(context, read_rows, Method.TIME, read_rows.best())
        answer.note = note
        return answer

    def _check_query(self, caller: Caller, query: SearchQuery) -> tuple[SearchQuery, bool]:
        """The query if it can be used, with its limit, in the namespaces that the credential can access. False: it can
        access none of those that the query names. With `as_of`, it is limited to memories created until then."""
        search = self._settings.search
        query = validation.narrowing(query, self._settings.limits)
        reachable = caller.reached(query.namespaces)
        limit, as_of, until = search.limit, query.as_of, query.created_to
        if query.limit is not None:
            limit = validation.between(query.limit, "limit", 1, search.max_limit)
        if as_of is not None:
            as_of = time_of(as_of, "as_of", caller.timezone)
            until = as_of if until is None else min(until, as_of)
        namespaces = query.namespaces if reachable is None else reachable
        query = replace(query, namespaces=namespaces, limit=limit, as_of=as_of, created_to=until)
        return query, reachable is not None


def _refuse_filters_of_passages(query: SearchQuery) -> None:
    """Refuse the fields that only passages have.

    Raises:
        Invalid: the query uses it.
    """
    fields = {"path": query.below, "language": query.languages, "symbol": query.symbol, "speakers": query.speakers}
    for field, used in fields.items():
        if used:
            raise Invalid(field, "applies to passages only; search them with corpus=passages")


def _refuse_filters_of_memories(query: SearchQuery) -> None:
    """Refuse the fields that only memories have.

    Raises:
        Invalid: the query uses it.
    """
    fields = {"filter": query.filter, "categories": query.categories, "as_of": query.as_of, "explain": query.explain}
    for field, used in fields.items():
        if used:
            raise Invalid(field, "applies to memories only; search them with corpus=memories")


async def rank(
    context: SearchContext,
    lookups: Lookups,
    by_meaning: Dense,
    words: list[LexicalHit],
    *,
    complete: bool,
    most: int | None = None,
) -> tuple[list[Ranked], SearchRound]:
    """The candidates of a round, best first, and the data that explains their scores. `complete` as in `candidates`.
    `most`: the number of first candidates that are ranked, and those written at a time that the question names."""
    dense, words = await lists_to_rank(context, lookups, by_meaning.hits, words)
    analysis = (await lookups.scope).query
    as_of = context.query.as_of
    waiting = lookups.rewritten_ids if as_of is not None else frozenset(analysis.waiting or ())
    chance = by_meaning.chance
    first = candidates(dense, words, floor=context.floor, complete=complete, waiting=waiting, chance=chance)
    if not first:
        return [], SearchRound()
    cut = most is not None and len(first) > most
    if cut:
        dated_ids = set() if lookups.dated_hits is None else {hit.id for hit in await lookups.dated_hits}
        first = first[:most] + [one for one in first[most:] if one.id in dated_ids]
    question_tokens = (await lookups.question).embedding.tokens if dense else None
    question = QuestionParts(context.query.text, context.times, recency_of(context), chance)
    model = None if question_tokens is None else context.space.model
    async with context.database.statement() as tx:
        batch = await candidate_rows(
            tx, context.caller, [one.id for one in first], model, corpus=context.corpus, all_rows=as_of is not None
        )
        if as_of is not None and batch.links:
            unchanged_ids = await unchanged_since(tx, context.caller, [link.neighbour for link in batch.links], as_of)
            batch.links = [link for link in batch.links if link.neighbour in unchanged_ids]
            batch.neighbours = {id_: row for id_, row in batch.neighbours.items() if id_ in unchanged_ids}
    readable_candidates = [one for one in first if one.id in batch.rows]
    readable_candidates += [Candidate(id_) for id_ in sorted(batch.neighbours)]
    rows = batch.rows | batch.neighbours
    beside = batch.beside()
    for one in readable_candidates:
        one.row, one.beside = rows[one.id], beside.get(one.id, one.beside)
    texts = [_tokens_of(one, rows, lookups.rewritten_ids) for one in readable_candidates]
    for one, late in zip(readable_candidates, await late_scores(question_tokens, texts), strict=True):
        one.late = late
    hits = ranked(readable_candidates, question)
    if not has_words(context.query.text):  # signs are in a text or not
        hits = newest_first(hits, [hit.id for hit in words])
    return hits, SearchRound(readable_candidates, whole=len(batch.rows) == len(first), cut=cut)


def _tokens_of(candidate: Candidate, rows: Mapping[UUID, CandidateRow], rewritten_ids: AbstractSet[UUID]) -> TextTokens:
    """The tokens of a candidate, and of those before it. The stored ones of a rewritten text belong to another."""

    def tokens(id_: UUID) -> bytes:
        return b"" if id_ in rewritten_ids else rows[id_].tokens

    own = tokens(candidate.id)
    if not candidate.beside:
        return TextTokens(own)
    near = (candidate.beside[step] for step in (-2, -1) if step in candidate.beside)
    return TextTokens(own, [tokens(id_) for id_ in near if not rows[id_].flagged])

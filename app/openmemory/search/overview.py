"""Answers broad questions ("what do you know about me?") with the most telling memories: important, recent, diverse.

Such a question has no words to look for, and its vector is near to nothing in particular. A search that finds nothing
is answered in the same way, so that an empty answer never looks like an empty memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Integer, Uuid, bindparam, func, literal_column, select, union
from sqlalchemy.dialects.postgresql import ARRAY, TEXT

from openmemory.access.apps import paused_message
from openmemory.access.readable import is_not_paused
from openmemory.content_policy.injection import LABEL
from openmemory.database.compiled import CompiledStatement
from openmemory.identity.caller import Caller, Default
from openmemory.memories.models import Memory
from openmemory.memories.repository import CATEGORY_NAMES
from openmemory.search.as_of import as_of_state, findable
from openmemory.search.compiled_filter import compiled_filter
from openmemory.search.context import SearchContext
from openmemory.search.explanation import SearchRound
from openmemory.search.filter_sql import Shape, by_shape, is_usual, predicate
from openmemory.search.ranking import Ranked
from openmemory.search.readback import log_search, read_best
from openmemory.search.recency import Recency
from openmemory.search.results import ReadRows, search_answer
from openmemory.search.schemas import Method, SearchAnswer, SearchQuery

CANDIDATES = 200
"""The number of newest and of most important memories that are compared. At least twice the number of results."""

IMPORTANCE_WEIGHT = 0.5
"""The share of importance in the worth of a memory."""

RECENCY_WEIGHT = 1 - IMPORTANCE_WEIGHT

BACKGROUND = 5
"""The maximum number of memories in the overview that answers a query for which nothing was found."""

BROAD = "the query is broad"
NOTHING_FOUND = "nothing was found for the query"

UNRATED = 0.5
"""The importance of a memory for which none is stated: useful, like most."""

HALF_LIFE = timedelta(days=90)
"""The time in which recency halves. It is counted back from the newest memory: nothing in an old store is recent."""

REPETITION = 0.9
"""The share of its worth that a memory loses if another one says all of its words."""

REPEATED_GROUP = 0.8
"""The factor for each memory of the same category, or kind if it has none, that was chosen before."""

MAX_LEXEMES = 100
"""The number of lexemes of a memory that are compared with others."""


class Telling(NamedTuple):
    """A memory that may be chosen, with what decides that."""

    id: UUID
    created_at: datetime
    importance: float | None
    groups: frozenset[str]
    """Its categories, or its kind."""
    lexemes: frozenset[str]
    flagged: bool = False


class OverviewScope(NamedTuple):
    """The memories that match a query's filters and that the caller may read: their number, and those that may be
    chosen. `paused`: the calling app is paused and reads nothing."""

    total: int
    paused: bool
    candidates: list[Telling]


def most_telling(candidates: Sequence[Telling], limit: int) -> list[Ranked]:
    """The memories to show, best first, with their scores.

        score = (IMPORTANCE_WEIGHT · importance + RECENCY_WEIGHT · recency)
            · (1 - REPETITION · overlap) · REPEATED_GROUP ^ repeats

    They are chosen one by one (maximal marginal relevance, Carbonell and Goldstein 1998): `overlap` is the largest
    share of lexemes in common with a memory that was chosen before, and `repeats` counts the chosen ones of the same
    group. Memories flagged as prompt injection follow after all others.
    """
    chosen: list[Ranked] = []
    for flagged in (False, True):
        rest = [one for one in candidates if one.flagged is flagged]
        chosen += _chosen(rest, limit - len(chosen), _recency_of(candidates))
    return chosen


def _chosen(rest: list[Telling], limit: int, recency: Recency) -> list[Ranked]:
    parts = {}
    for one in rest:
        rated = UNRATED if one.importance is None else one.importance
        parts[one.id] = IMPORTANCE_WEIGHT * rated, RECENCY_WEIGHT * recency.of(one.created_at)
    # What overlap leaves, and the product of the REPEATED_GROUPs.
    factors = {one.id: (1.0, 1.0) for one in rest}
    chosen: list[Ranked] = []
    while rest and len(chosen) < limit:
        best = max(rest, key=lambda one: sum(parts[one.id]) * factors[one.id][0] * factors[one.id][1])
        importance, recent = parts[best.id]
        scale = factors[best.id][0] * factors[best.id][1]
        chosen.append(Ranked(best.id, scale * (importance + recent)))
        rest = [one for one in rest if one is not best]
        for one in rest:
            distinct, repeats = factors[one.id]
            distinct = min(distinct, 1 - REPETITION * _overlap(one.lexemes, best.lexemes))
            factors[one.id] = distinct, repeats * (REPEATED_GROUP if one.groups & best.groups else 1.0)
    return chosen


def _recency_of(candidates: Sequence[Telling]) -> Recency:
    """The decay of recency, counted back from the newest of the candidates, of which there is at least one."""
    return Recency(HALF_LIFE, max(one.created_at for one in candidates))


def _overlap(one: frozenset[str], other: frozenset[str]) -> float:
    """The share of the lexemes of the shorter text that the other contains too."""
    shorter = min(len(one), len(other))
    return len(one & other) / shorter if shorter else 0.0


def _selection(total: int, shown: int) -> str:
    if shown == total:
        return f"there {_are(total)}, the most telling first"
    return f"there {_are(total)}, of which these {shown} are the most telling"


def _are(count: int) -> str:
    return "is 1 memory" if count == 1 else f"are {count:,} memories"


async def overview_answer(
    context: SearchContext, why: str | None = None, *, missing: str | None = None, method: Method = Method.HYBRID
) -> SearchAnswer:
    """The most telling memories that match the filters of the query, and a log of each access.

    `why` is the reason for an overview. `missing` says what kept a search from finding more, and `method` is its
    method, which an empty answer has too.
    """
    scope = await _scope_of(context, context.limit)
    if not scope.candidates:
        return await empty_answer(context, missing=missing, method=method)
    found = ReadRows(context.limit)
    hits = most_telling(scope.candidates, context.limit)
    found.ranked(hits, SearchRound() if context.query.explain else None)
    await read_best(context, hits, Method.OVERVIEW, found)
    if not found.rows:  # they have changed meanwhile
        await log_search(context, Method.OVERVIEW)
    answer = search_answer(context, found, Method.OVERVIEW, found.best())
    answer.note = _note(missing, why, _selection(scope.total, len(answer.results)))
    return answer


async def empty_answer(
    context: SearchContext, *, missing: str | None = None, method: Method = Method.HYBRID
) -> SearchAnswer:
    """An answer without results. Its note says why, if there are memories that do not match the filters of the
    query."""
    await log_search(context, method)
    everything = SearchQuery(context.query.text)
    scope = await _scope_of(replace(context, query=everything, filter=compiled_filter(context.caller, everything)), 0)
    why = None
    if scope.paused:
        why = paused_message(context.caller.app, "read memories")
    elif scope.total:
        why = f"no memory matches the filters of the query; without them, there {_are(scope.total)}"
    answer = search_answer(context, ReadRows(0), method, [])
    answer.note = _note(missing, why) or None
    return answer


def _note(*parts: str | None) -> str:
    note = "; ".join(part for part in parts if part)
    return note[:1].upper() + note[1:]


async def _scope_of(context: SearchContext, limit: int) -> OverviewScope:
    """Reads the memories that an overview may show, `limit` of them at most. 0: only counts."""
    caller, as_of = context.caller, context.query.as_of
    statement = _statement(caller.owner, caller.default, as_of is not None, context.filter.shape)
    size = max(CANDIDATES, 2 * limit) if limit else 0
    async with context.database.statement() as tx:
        rows = await statement.rows(tx, {**context.filter.parameters, "as_of": as_of, "size": size})
    total, paused = rows[0][:2]
    return OverviewScope(total, paused, list(_candidates(row[2:] for row in rows if row[2] is not None)))


def _candidates(rows: Iterable[Sequence[Any]]) -> Iterable[Telling]:
    for id_, created_at, importance, kind, labels, categories, lexemes in rows:
        groups = frozenset(categories or (kind,))
        yield Telling(id_, created_at, importance, groups, frozenset(lexemes), LABEL in labels)


@by_shape
def _statement(owner: bool, default: Default, as_then: bool, shape: Shape) -> CompiledStatement:
    """The number of memories, whether the app is paused, and the newest and most important memories: one row for each,
    and at least one."""
    caller = Caller.anyone(owner=owner, default=default)
    source, may_find = findable(caller, as_of_state(caller) if as_then else None)
    mine = Memory.user_id == bindparam("caller_user_id", type_=Uuid()), may_find, predicate(shape)
    size = bindparam("size", type_=Integer())
    ids = select(Memory.id).select_from(source).where(*mine)
    newest = ids.order_by(Memory.created_at.desc(), Memory.id.desc()).limit(size).subquery("newest")
    rated = ids.where(Memory.importance > literal_column(str(UNRATED)))
    important = rated.order_by(Memory.importance.desc(), Memory.created_at.desc(), Memory.id.desc())
    some = union(select(newest.c.id), select(important.limit(size).subquery("important").c.id)).subquery("some")
    lexemes = literal_column(f"(tsvector_to_array(memories.words))[1:{MAX_LEXEMES}]", ARRAY(TEXT))
    candidates = (
        select(
            Memory.id,
            Memory.created_at,
            Memory.importance,
            Memory.kind,
            Memory.labels,
            CATEGORY_NAMES.label("categories"),
            lexemes.label("lexemes"),
        )
        .join(some, some.c.id == Memory.id)
        .subquery("candidates")
    )
    total = select(func.count().label("total")).select_from(source).where(*mine).subquery("counted")
    paused: Any = literal_column("false") if owner else ~is_not_paused()
    statement = (
        select(total.c.total, paused.label("paused"), *candidates.c)
        .select_from(total.join(candidates, literal_column("true"), isouter=True))
        .order_by(candidates.c.created_at.desc(), candidates.c.id.desc())
    )
    return CompiledStatement(statement, plain=True, kept=is_usual(shape))

"""Finds the memories written at a time, for questions that contain only a time ("what happened last week?")."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import Boolean, DateTime, Integer, Text, Uuid, bindparam, column, func, literal_column, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.content_policy.injection import LABEL
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.memories.models import Memory
from openmemory.search.candidates.query_analysis import analysed
from openmemory.search.candidates.retrieval import analysed_scope, lexical_search
from openmemory.search.candidates.ruled_rows import allowed_memories, ruled_rows, rules_revision
from openmemory.search.context import SearchContext
from openmemory.search.query.periods import spellings
from openmemory.search.sql.acl import RuleSets
from openmemory.search.sql.as_of import as_of_state, findable
from openmemory.search.sql.filter import Shape, by_shape, is_usual, predicate

_TIMES: Any = ARRAY(DateTime(timezone=True))


class TimedMemory(NamedTuple):
    """A memory and its creation time."""

    id: UUID
    at: datetime


async def memories_written_at(context: SearchContext) -> list[TimedMemory]:
    """The memories written at one of the times that the query names, which match its filters and which the caller may
    read, newest first, at most as many as requested.

    Flagged prompt injections come last, no matter how new, and displace nothing.
    """
    async with context.database.statement() as tx:
        memories = await _newest_at_times(tx, context, context.limit, flagged=False)
        if len(memories) < context.limit:
            memories += await _newest_at_times(tx, context, context.limit - len(memories), flagged=True)
    return memories


async def memories_that_name(context: SearchContext) -> list[TimedMemory]:
    """The memories whose text names the month, day or year that the query consists of, at most as many as requested,
    best first. Of a time that depends on today, such as "last week", there are none: no text says which week it means.
    """
    variants = spellings(context.query.text)
    if not variants:
        return []
    # One word is no phrase.
    text = variants[0] if len(variants) == 1 else " ".join(f'"{one}"' for one in variants)
    where = (await analysed_scope(context)).scope.lexical
    async with context.database.statement() as tx:
        analysis = await analysed(tx, variants[0], where)
        hits = await lexical_search(context, where, analysis, context.limit, text=text).phrases(tx)
    return [TimedMemory(hit.id, context.hour) for hit in hits]


async def _newest_at_times(tx: Tx, context: SearchContext, limit: int, *, flagged: bool) -> list[TimedMemory]:
    values = {
        "starts": [time.start for time in context.times],
        "ends": [time.end for time in context.times],
        "flagged": flagged,
        "limit": limit,
    }
    rows = await ruled_rows(tx, context, _statement, values)
    # Times may overlap: "in 2023 and in May 2023".
    return [TimedMemory(id_, at) for id_, at in dict.fromkeys(rows) if id_ is not None][:limit]


@by_shape
def _statement(owner: bool, default: Default, as_then: bool, sets: RuleSets, shape: Shape) -> CompiledStatement:
    """The revision of the rules, and the newest memories of each time, in the order of an index: one row for each, and
    at least one."""
    caller = Caller.anyone(owner=owner, default=default)
    when = DateTime(timezone=True)
    times = (
        func.unnest(bindparam("starts", type_=_TIMES), bindparam("ends", type_=_TIMES))
        .table_valued(column("start", when), column("until", when), name="times")
        .render_derived()
    )
    label = Memory.labels.contains(literal_column(f"array['{LABEL}']", ARRAY(Text)))
    allowed = allowed_memories(sets, in_order=True)
    source, may_find = findable(caller, as_of_state(caller) if as_then else None, allowed)
    of_one = (
        select(Memory.id, Memory.created_at)
        .select_from(source)
        .where(
            Memory.user_id == bindparam("caller_user_id", type_=Uuid()),
            Memory.created_at >= func.coalesce(times.c.start, literal_column("'-infinity'::timestamptz")),
            Memory.created_at < func.coalesce(times.c.until, literal_column("'infinity'::timestamptz")),
            label == bindparam("flagged", type_=Boolean()),
            may_find,
            predicate(shape),
        )
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .limit(bindparam("limit", type_=Integer()))
        .correlate(times)
        .lateral("of_one")
    )
    memories = select(of_one.c.id, of_one.c.created_at).select_from(times.join(of_one, true())).subquery("found")
    rules = select(rules_revision(owner).label("revision")).subquery("rules")
    rows = select(rules.c.revision, *memories.c).select_from(rules.outerjoin(memories, true()))
    newest = rows.order_by(memories.c.created_at.desc(), memories.c.id.desc())
    return CompiledStatement(newest, plain=True, prepare=is_usual(shape))

"""Memories in the order of how often something is true of them: related ones, and what an app accessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Select,
    Uuid,
    case,
    cast,
    func,
    literal_column,
    select,
)

from app.access.caller import Caller
from app.access.readable import hidden_from, readable_by
from app.audit.models import MemoryAccessLog
from app.database import Tx
from app.memories import listing
from app.memories.listing import FEW, PLANNED, Slice
from app.memories.models import Memory, MemoryCategory, State
from app.memories.repository import ALL_STATES, filed_under
from app.memories.schemas import MemoryQuery, MemoryRecord


class Source(NamedTuple):
    """What is counted of each memory: the rows that `which` selects, by their column `memory_id`.

    `once`: there is at most one of each, so they need not be brought together.
    """

    memory_id: Any
    which: ColumnElement[bool]
    once: bool = False

    def per_memory(self) -> Select[UUID, int]:
        """How many there are of each memory."""
        times = literal_column("1::bigint") if self.once else func.count()
        query = select(self.memory_id.label("memory_id"), times.label("times")).where(self.which)
        return query if self.once else query.group_by(self.memory_id)

    def of_one(self) -> ColumnElement[int]:
        """How many there are of one memory."""
        return select(func.count()).where(self.memory_id == Memory.id, self.which).correlate(Memory).scalar_subquery()


async def related(
    tx: Tx, caller: Caller, memory_id: UUID, states: Sequence[State], wanted: Slice
) -> tuple[list[MemoryRecord], int]:
    """Some of the memories that share categories with one, and how many there are in all.

    Those that share most come first, of these the newest.
    """
    own = select(MemoryCategory.category_id).where(MemoryCategory.memory_id == memory_id)
    categories = list(await tx.scalars(own))
    if not categories:
        return [], 0
    shared = filed_under(categories) & (MemoryCategory.memory_id != memory_id)
    source = Source(MemoryCategory.memory_id, shared, once=len(categories) == 1)
    found, total = await _page(tx, caller, source, states, wanted)
    return [record for record, _ in found], total


async def accessed(tx: Tx, caller: Caller, app_id: UUID, wanted: Slice) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """Some of the memories that an app accessed with the number of times, and how many there are in all.

    Those accessed most often come first, of these the newest.
    """
    source = Source(MemoryAccessLog.memory_id, MemoryAccessLog.app_id == app_id)
    return await _page(tx, caller, source, ALL_STATES, wanted)


async def _page(
    tx: Tx, caller: Caller, source: Source, states: Sequence[State], wanted: Slice
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    await tx.execute(PLANNED)
    before = 0
    often: dict[UUID, int] = {}
    for times, size, listed in await tx.execute(_levels(caller, source, states, wanted), caller.parameters):
        ids = listed or []
        part = wanted.within(before, size)
        if listed is None and part.limit > 0:
            level = readable_by(caller, Memory, states=states) & (source.of_one() == times)
            ids = await _newest(tx, caller, level, part.of(size))
        often |= dict.fromkeys(ids, times)
        before += size
    records = await listing.rows(tx, caller, MemoryQuery(states=tuple(states)), list(often))
    return [(record, often[record.id]) for record in records], before


def _levels(caller: Caller, source: Source, states: Sequence[State], wanted: Slice) -> Select[Any]:
    """How many memories there are of each number of times, most times first, and of small levels the wanted ids.

    What may not be read is usually little, so it is that which is looked up and left out. A large level has no ids
    here: a page of it is met soon by looking at one memory after the other.
    """
    hidden = select(Memory.id).where(hidden_from(caller, Memory, states=states))
    visible = source.per_memory().where(source.memory_id.not_in(hidden)).subquery("visible")
    size, times = func.count().label("size"), visible.c.times
    upto = cast(func.sum(func.count()).over(order_by=times.desc()), BigInteger).label("upto")
    members = case((func.count() <= FEW, func.array_agg(visible.c.memory_id))).label("members")
    levels = select(times, size, upto, members).group_by(times).subquery("levels")
    begin = levels.c.upto - levels.c.size
    skip = func.greatest(0, wanted.offset - begin)
    newest = (
        select(Memory.id)
        .where(Memory.id == func.any(levels.c.members))
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .offset(skip)
        .limit(wanted.offset + wanted.limit - begin - skip)
        .correlate(levels)
        .scalar_subquery()
    )
    is_wanted = (levels.c.upto > wanted.offset) & (begin < wanted.offset + wanted.limit)
    ids = case((is_wanted & levels.c.members.is_not(None), func.array(newest, type_=ARRAY(Uuid))))
    return select(levels.c.times, levels.c.size, ids).order_by(levels.c.times.desc())


async def _newest(tx: Tx, caller: Caller, level: ColumnElement[bool], part: Slice) -> list[UUID]:
    """The ids of a part of a level, newest first."""
    if part.backwards:
        order = Memory.created_at.asc(), Memory.id.asc()
    else:
        order = Memory.created_at.desc(), Memory.id.desc()
    query = select(Memory.id).where(level).order_by(*order).limit(part.limit).offset(part.offset)
    found = list(await tx.scalars(query, caller.parameters))
    return found[::-1] if part.backwards else found

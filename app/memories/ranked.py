"""Memories in the order of how often something is true of them: related ones, and what an app accessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Select, bindparam, case, func, select

from app.access.caller import Caller
from app.access.readable import readable_by
from app.audit.models import MemoryAccessLog
from app.database import Tx
from app.memories import listing
from app.memories.listing import FEW, PLANNED, Slice
from app.memories.models import Memory, MemoryCategory, State
from app.memories.repository import ALL_STATES
from app.memories.schemas import MemoryQuery, MemoryRecord


class Source(NamedTuple):
    """What is counted of each memory: the rows that `which` selects, by their column `memory_id`."""

    memory_id: Any
    which: ColumnElement[bool]

    def per_memory(self) -> Select[UUID, int]:
        """How many there are of each memory."""
        query = select(self.memory_id.label("memory_id"), func.count().label("times"))
        return query.where(self.which).group_by(self.memory_id)

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
    shared = (
        (MemoryCategory.user_id == bindparam("caller_user_id"))
        & (MemoryCategory.category_id == func.any(categories))
        & (MemoryCategory.memory_id != memory_id)
    )
    found, total = await _page(tx, caller, Source(MemoryCategory.memory_id, shared), states, wanted)
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
    for times, size, members in await tx.execute(_levels(caller, source, states, wanted), caller.parameters):
        skip = max(0, wanted.offset - before)
        part = Slice(skip, min(size - skip, wanted.offset + wanted.limit - before - skip))
        if part.limit > 0:
            level = _level(caller, source, states, times, members)
            often |= dict.fromkeys(await _newest(tx, caller, level, part.of(size)), times)
        before += size
    records = await listing.rows(tx, caller, MemoryQuery(states=tuple(states)), list(often))
    return [(record, often[record.id]) for record in records], before


def _levels(caller: Caller, source: Source, states: Sequence[State], wanted: Slice) -> Select[Any]:
    """How many memories there are of each number of times, most times first, and which, if few and wanted.

    What may not be read is usually little, so it is that which is looked up and left out.
    """
    counts = source.per_memory().cte("counts").prefix_with("MATERIALIZED", dialect="postgresql")
    hidden = select(Memory.id).where(
        Memory.user_id == bindparam("caller_user_id"), readable_by(caller, Memory, states=states).is_not(True)
    )
    visible = select(counts).where(counts.c.memory_id.not_in(hidden)).cte("visible")
    visible = visible.prefix_with("MATERIALIZED", dialect="postgresql")
    upto = func.sum(func.count()).over(order_by=visible.c.times.desc()).label("upto")
    levels = select(visible.c.times, func.count().label("size"), upto).group_by(visible.c.times).subquery("levels")
    same = visible.alias("same")
    members = select(func.array_agg(same.c.memory_id)).where(same.c.times == levels.c.times).scalar_subquery()
    is_wanted = (levels.c.upto > wanted.offset) & (levels.c.upto - levels.c.size < wanted.offset + wanted.limit)
    few = case((is_wanted & (levels.c.size <= FEW), members))
    return select(levels.c.times, levels.c.size, few).order_by(levels.c.times.desc())


def _level(
    caller: Caller, source: Source, states: Sequence[State], times: int, members: list[UUID] | None
) -> ColumnElement[bool]:
    """The memories of one number of times. Of many, the page is met soon by looking at one after the other."""
    readable = readable_by(caller, Memory, states=states)
    return readable & (source.of_one() == times if members is None else Memory.id == func.any(members))


async def _newest(tx: Tx, caller: Caller, level: ColumnElement[bool], part: Slice) -> list[UUID]:
    """The ids of a part of a level, newest first."""
    if part.backwards:
        order = Memory.created_at.asc(), Memory.id.asc()
    else:
        order = Memory.created_at.desc(), Memory.id.desc()
    query = select(Memory.id).where(level).order_by(*order).limit(part.limit).offset(part.offset)
    found = list(await tx.scalars(query, caller.parameters))
    return found[::-1] if part.backwards else found

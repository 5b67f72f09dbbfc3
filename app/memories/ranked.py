"""Memories in the order of how often something is true of them: related ones, and what an app accessed."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from sqlalchemy import CTE, Select, bindparam, func, select
from sqlalchemy.dialects.postgresql import aggregate_order_by

from app.access.caller import Caller
from app.access.readable import readable_by
from app.audit.models import MemoryAccessLog
from app.database import Tx
from app.memories import listing
from app.memories.listing import PLANNED, Slice
from app.memories.models import Memory, MemoryCategory, State
from app.memories.repository import ALL_STATES
from app.memories.schemas import MemoryQuery, MemoryRecord


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
        select(MemoryCategory.memory_id, func.count().label("times"))
        .where(
            MemoryCategory.user_id == bindparam("caller_user_id"),
            MemoryCategory.category_id == func.any(categories),
            MemoryCategory.memory_id != memory_id,
        )
        .group_by(MemoryCategory.memory_id)
    )
    found, total = await _page(tx, caller, shared, states, wanted)
    return [record for record, _ in found], total


async def accessed(tx: Tx, caller: Caller, app_id: UUID, wanted: Slice) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """Some of the memories that an app accessed with the number of times, and how many there are in all.

    Those accessed most often come first, of these the newest.
    """
    accesses = (
        select(MemoryAccessLog.memory_id, func.count().label("times"))
        .where(MemoryAccessLog.app_id == app_id)
        .group_by(MemoryAccessLog.memory_id)
    )
    return await _page(tx, caller, accesses, ALL_STATES, wanted)


async def _page(
    tx: Tx, caller: Caller, source: Select[UUID, int], states: Sequence[State], wanted: Slice
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """Some of the memories of `source`, which gives `memory_id` and `times`, and how many of them may be read in all.

    What may not be read is usually little, so it is that which is looked up and left out. The rest is counted by
    `times`, and only those that stand as high as the page are sorted.
    """
    await tx.execute(PLANNED)
    counts = source.cte("counts").prefix_with("MATERIALIZED", dialect="postgresql")
    hidden = select(Memory.id).where(
        Memory.user_id == bindparam("caller_user_id"), readable_by(caller, Memory, states=states).is_not(True)
    )
    visible = select(counts).where(counts.c.memory_id.not_in(hidden)).cte("visible")
    visible = visible.prefix_with("MATERIALIZED", dialect="postgresql")
    upto = func.sum(func.count()).over(order_by=visible.c.times.desc()).label("upto")
    levels: CTE = select(visible.c.times, func.count().label("size"), upto).group_by(visible.c.times).cte("levels")
    before = levels.c.upto - levels.c.size
    touched = levels.c.upto > wanted.offset, before < wanted.offset + wanted.limit
    first = select(func.coalesce(func.min(before), 0)).where(levels.c.upto > wanted.offset).scalar_subquery()
    page = (
        select(Memory.id, visible.c.times, Memory.created_at)
        .join(visible, visible.c.memory_id == Memory.id)
        .where(Memory.user_id == bindparam("caller_user_id"))
        .where(visible.c.times.in_(select(levels.c.times).where(*touched)))
        .order_by(visible.c.times.desc(), Memory.created_at.desc(), Memory.id.desc())
        .limit(wanted.limit)
        .offset(wanted.offset - first)
        .subquery("page")
    )
    total = select(func.coalesce(func.max(levels.c.upto), 0)).scalar_subquery()
    order = page.c.times.desc(), page.c.created_at.desc(), page.c.id.desc()
    ids, times = (func.array_agg(aggregate_order_by(each, *order)) for each in (page.c.id, page.c.times))
    row = (await tx.execute(select(total, ids, times), caller.parameters)).one()
    often = dict(zip(row[1] or (), row[2] or (), strict=True))
    records = await listing.rows(tx, caller, MemoryQuery(states=tuple(states)), list(often))
    return [(record, often[record.id]) for record in records], int(row[0])

"""Counts the memories that match a query."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, literal_column, select

from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories.listing.criteria import OWN_ASSIGNMENTS, ListCriteria, parameters
from openmemory.memories.models import Category, Memory, MemoryCategory
from openmemory.memories.schemas import MemoryQuery
from openmemory.stats.schemas import Extent

SHOWN = 100
"""The maximum number of values and of categories that are counted one by one."""


async def extent(tx: Tx, caller: Caller, query: MemoryQuery, field: str) -> Extent:
    """The size of what matches. `field`: that of the metadata whose values are counted."""
    columns = Memory.id, Memory.created_at, Memory.updated_at, Memory.expires_at, Memory.metadata_[field].astext
    found = select(*columns[:4], columns[4].label("part")).where(ListCriteria.of(caller, query).matching()).cte("found")
    values = parameters(caller, query)
    number: Any = func.count()
    whole = select(
        number.label("total"),
        func.count(found.c.expires_at).label("expiring"),
        func.min(found.c.created_at).label("oldest"),
        func.max(found.c.updated_at).label("newest"),
    )
    parts = select(found.c.part, number).where(found.c.part.is_not(None)).group_by(found.c.part)
    named = (
        select(Category.name, number)
        .select_from(found)
        .join(MemoryCategory, MemoryCategory.memory_id == found.c.id)
        .join(Category, Category.id == MemoryCategory.category_id)
        .where(OWN_ASSIGNMENTS)
        .group_by(Category.name)
    )
    row = (await tx.execute(whole, values)).one()
    counts = []
    for grouped in (parts, named):
        rows = await tx.execute(grouped.order_by(number.desc(), literal_column("1")).limit(SHOWN), values)
        counts.append(dict(map(tuple, rows)))
    return Extent(row.total, row.expiring, row.oldest, row.newest, *counts)

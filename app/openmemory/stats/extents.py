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

MAX_VALUES = 100
"""The maximum number of values and of categories that are counted one by one."""


async def extent(tx: Tx, caller: Caller, query: MemoryQuery, field: str) -> Extent:
    """The size of what matches. `field`: that of the metadata whose values are counted."""
    columns = Memory.id, Memory.created_at, Memory.updated_at, Memory.expires_at, Memory.metadata_[field].astext
    matching = ListCriteria.of(caller, query).matching()
    matches = select(*columns[:4], columns[4].label("part")).where(matching).cte("found")
    values = parameters(caller, query)
    number: Any = func.count()
    whole = select(
        number.label("total"),
        func.count(matches.c.expires_at).label("expiring"),
        func.min(matches.c.created_at).label("oldest"),
        func.max(matches.c.updated_at).label("newest"),
    )
    parts = select(matches.c.part, number).where(matches.c.part.is_not(None)).group_by(matches.c.part)
    by_category = (
        select(Category.name, number)
        .select_from(matches)
        .join(MemoryCategory, MemoryCategory.memory_id == matches.c.id)
        .join(Category, Category.id == MemoryCategory.category_id)
        .where(OWN_ASSIGNMENTS)
        .group_by(Category.name)
    )
    row = (await tx.execute(whole, values)).one()
    counts = []
    for grouped in (parts, by_category):
        rows = await tx.execute(grouped.order_by(number.desc(), literal_column("1")).limit(MAX_VALUES), values)
        counts.append(dict(map(tuple, rows)))
    return Extent(row.total, row.expiring, row.oldest, row.newest, *counts)

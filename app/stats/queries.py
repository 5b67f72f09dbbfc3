"""Which categories there are. It goes through `readable_by`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, literal_column, select, true

from app.access.caller import Caller
from app.access.readable import readable_by
from app.database import Tx
from app.memories.listing import PLANNED
from app.memories.models import Category, Memory, MemoryCategory, State
from app.memories.repository import OWN_FILINGS


async def categories(tx: Tx, caller: Caller, states: Sequence[State]) -> Sequence[Any]:
    """The categories of the memories in these states that the caller may read, by name.

    From one category of the user to the next, and of each no further than to the first such memory.
    """
    await tx.execute(PLANNED)
    first = select(MemoryCategory.category_id).where(OWN_FILINGS).order_by(MemoryCategory.category_id).limit(1)
    filed = select(first.scalar_subquery().label("category_id")).cte("filed", recursive=True)
    following = first.where(MemoryCategory.category_id > filed.c.category_id).correlate(filed).scalar_subquery()
    filed = filed.union_all(select(following).where(filed.c.category_id.is_not(None)))
    one = (
        select(literal_column("1").label("one"))
        .select_from(MemoryCategory)
        .join(Memory, Memory.id == MemoryCategory.memory_id)
        .where(
            OWN_FILINGS,
            MemoryCategory.category_id == filed.c.category_id,
            Memory.user_id == bindparam("caller_user_id"),
            readable_by(caller, Memory, states=states),
        )
        .limit(1)
        .lateral("one")
    )
    query = (
        select(*Category.__table__.columns)
        .join(filed, filed.c.category_id == Category.id)
        .join(one, true())
        .order_by(Category.name)
    )
    return (await tx.execute(query, caller.parameters)).all()

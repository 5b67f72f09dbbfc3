"""Which categories there are. It goes through `readable_by`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import bindparam, exists, select

from app.access.caller import Caller
from app.access.readable import readable_by
from app.database import Tx
from app.memories.models import Category, Memory, MemoryCategory, State


async def categories(tx: Tx, caller: Caller, states: Sequence[State]) -> Sequence[Any]:
    """The categories of the memories in these states that the caller may read, by name."""
    filed = exists().where(
        MemoryCategory.category_id == Category.id,
        MemoryCategory.user_id == bindparam("caller_user_id"),
        Memory.id == MemoryCategory.memory_id,
        readable_by(caller, Memory, states=states),
    )
    query = select(*Category.__table__.columns).where(filed).order_by(Category.name)
    return (await tx.execute(query, caller.parameters)).all()

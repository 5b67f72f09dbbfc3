"""Lists the categories in use. The query goes through `readable_by`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import Uuid, bindparam, literal_column, select, true

from openmemory.access.readable import readable_by
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.memories.listing.criteria import OWN_ASSIGNMENTS
from openmemory.memories.models import Category, Memory, MemoryCategory, State


async def categories(tx: Tx, caller: Caller, states: tuple[State, ...]) -> Sequence[Any]:
    """The categories of the memories in these states that the caller may read, by name.

    Skips from one category of the user to the next (loose index scan) and stops at the first such memory in each.
    """
    return await _categories(caller.owner, caller.default, states).rows(tx, caller.parameters)


@lru_cache(maxsize=16)
def _categories(owner: bool, default: Default, states: tuple[State, ...]) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    first = select(MemoryCategory.category_id).where(OWN_ASSIGNMENTS).order_by(MemoryCategory.category_id)
    first = first.limit(literal_column("1"))
    filed = select(first.scalar_subquery().label("category_id")).cte("filed", recursive=True)
    following = first.where(MemoryCategory.category_id > filed.c.category_id).correlate(filed).scalar_subquery()
    filed = filed.union_all(select(following).where(filed.c.category_id.is_not(None)))
    one = (
        select(literal_column("1").label("one"))
        .select_from(MemoryCategory)
        .join(Memory, Memory.id == MemoryCategory.memory_id)
        .where(
            OWN_ASSIGNMENTS,
            MemoryCategory.category_id == filed.c.category_id,
            Memory.user_id == bindparam("caller_user_id", type_=Uuid),
            readable_by(caller, Memory, states=states),
        )
        .limit(literal_column("1"))
        .lateral("one")
    )
    query = (
        select(*Category.__table__.columns)
        .join(filed, filed.c.category_id == Category.id)
        .join(one, true())
        .order_by(Category.name)
    )
    return CompiledStatement(query)

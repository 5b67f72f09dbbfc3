"""Lists the categories in use, through `readable_by`, and counts what apps did on each day."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from sqlalchemy import ARRAY, DateTime, Uuid, bindparam, literal_column, select, true

from openmemory.access.readable import readable_by
from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement, bound
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import Caller, Default
from openmemory.memories.listing.criteria import OWN_ASSIGNMENTS
from openmemory.memories.models import Category, Memory, MemoryCategory
from openmemory.memories.state import State

DAYS = CompiledStatement(
    bound(
        load_sql(__name__, "days"),
        {"user": Uuid(), "app": Uuid(), "since": DateTime(timezone=True), "days": ARRAY(DateTime(timezone=True))},
    )
)
"""Count the writes and accesses of the apps of a `user`, or of one `app`, on each day `since` then. `days` has the
first moment of each day; a day is its number there, from 1. Days without either are left out."""


async def categories(tx: Tx, caller: Caller, states: tuple[State, ...]) -> Sequence[Any]:
    """The categories of the memories in these states that the caller may read, by name. Logs that they were listed.

    Skips from one category of the user to the next (loose index scan) and stops at the first such memory in each.
    """
    logged = audit_log.parameters(caller, AuditAction.CATEGORY_LIST)
    return await _categories(caller.owner, caller.default, states).rows(tx, {**caller.parameters, **logged})


@lru_cache(maxsize=16)
def _categories(owner: bool, default: Default, states: tuple[State, ...]) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    first = select(MemoryCategory.category_id).where(OWN_ASSIGNMENTS).order_by(MemoryCategory.category_id)
    first = first.limit(literal_column("1"))
    assigned = select(first.scalar_subquery().label("category_id")).cte("assigned", recursive=True)
    following = first.where(MemoryCategory.category_id > assigned.c.category_id).correlate(assigned).scalar_subquery()
    assigned = assigned.union_all(select(following).where(assigned.c.category_id.is_not(None)))
    one = (
        select(literal_column("1").label("one"))
        .select_from(MemoryCategory)
        .join(Memory, Memory.id == MemoryCategory.memory_id)
        .where(
            OWN_ASSIGNMENTS,
            MemoryCategory.category_id == assigned.c.category_id,
            Memory.user_id == bindparam("caller_user_id", type_=Uuid),
            readable_by(caller, Memory, states=states),
        )
        .limit(literal_column("1"))
        .lateral("one")
    )
    categories = (
        select(*Category.__table__.columns)
        .join(assigned, assigned.c.category_id == Category.id)
        .join(one, true())
        .cte("found")
    )
    return CompiledStatement(select(categories).order_by(categories.c.name).add_cte(audit_log.inserted(categories)))

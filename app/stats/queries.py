"""The SQL of `service`. Every one goes through `readable_by`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import exists, func, select

from app.access.caller import Caller
from app.access.readable import readable_by
from app.audit.models import MemoryAccessLog
from app.database import Tx
from app.memories import repository
from app.memories.models import Category, Memory, MemoryCategory, State
from app.memories.repository import ALL_STATES
from app.memories.schemas import MemoryRecord


async def categories(tx: Tx, caller: Caller, states: Sequence[State]) -> Sequence[Any]:
    """The categories of the memories in these states that the caller may read, by name."""
    filed = exists().where(
        MemoryCategory.category_id == Category.id,
        Memory.id == MemoryCategory.memory_id,
        readable_by(caller, Memory, states=states),
    )
    query = select(*Category.__table__.columns).where(filed).order_by(Category.name)
    return (await tx.execute(query, caller.parameters)).all()


async def accessed(
    tx: Tx, caller: Caller, app_id: UUID, *, offset: int, limit: int
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """Some of the memories that an app accessed and that the caller may read, and how many there are in all.

    Those accessed most often come first, of these the newest.
    """
    count = func.count().label("access_count")
    accesses = (
        select(MemoryAccessLog.memory_id, count)
        .where(MemoryAccessLog.app_id == app_id)
        .group_by(MemoryAccessLog.memory_id)
        .subquery()
    )
    which = readable_by(caller, Memory, states=ALL_STATES)
    of_memory = Memory.id == accesses.c.memory_id
    total = select(func.count()).select_from(Memory).join(accesses, of_memory).where(which)
    rows = await tx.execute(
        repository.whole()
        .add_columns(accesses.c.access_count)
        .join(accesses, of_memory)
        .where(which)
        .order_by(accesses.c.access_count.desc(), Memory.created_at.desc(), Memory.id.desc())
        .limit(limit)
        .offset(offset),
        caller.parameters,
    )
    found = [(repository.record(row), row.access_count) for row in rows]
    return found, await tx.scalar(total, caller.parameters) or 0

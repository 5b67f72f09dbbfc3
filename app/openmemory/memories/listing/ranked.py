"""Memories ordered by a count: related memories by shared categories, and the memories an app accessed most often."""

from __future__ import annotations

from functools import lru_cache
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, Uuid, and_, bindparam, func, select

from openmemory.access.readable import readable_by
from openmemory.audit.models import MemoryAccessLog
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.identity.caller import Caller, Default
from openmemory.memories import repository
from openmemory.memories.listing import pages, statements
from openmemory.memories.listing.criteria import OWN_ASSIGNMENTS, ListCriteria
from openmemory.memories.listing.pages import ListAccess, ListedPage
from openmemory.memories.models import Memory, MemoryCategory
from openmemory.memories.schemas import MemoryQuery, MemoryRecord
from openmemory.memories.state import State

_SHARED = and_(
    OWN_ASSIGNMENTS,
    MemoryCategory.category_id == func.any(bindparam("categories", type_=ARRAY(Uuid))),
    MemoryCategory.memory_id != bindparam("memory_id", type_=Uuid),
)
_ACCESSED = MemoryAccessLog.app_id == bindparam("app_id", type_=Uuid)


async def related(database: Database, caller: Caller, memory_id: UUID, *, offset: int, limit: int) -> ListedPage | None:
    """A range of the memories that share categories with one memory, and their total number. None if the caller may not
    read that memory.

    The memories with most shared categories come first, then the newest. The user themself sees all memories that are
    not deleted, an app only active ones.
    """
    query = MemoryQuery(states=repository.KEPT_STATES if caller.owner else (State.ACTIVE,))
    own = _own_categories(caller.owner, caller.default)
    async with database.statement() as tx:
        rows = await own.rows(tx, caller.parameters | {"memory_id": memory_id})
    if not rows:
        return None
    statement = _by_count(ListCriteria.of(caller, query), MemoryCategory)
    binds = {"categories": rows[0][0], "memory_id": memory_id, "offset": offset, "limit": limit}
    counts, total = await _page(database, caller, query, statement, binds)
    return ListedPage([record for record, _ in counts], total)


async def accessed(
    database: Database, caller: Caller, app_id: UUID, *, offset: int, limit: int
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """A range of the memories that an app accessed, each with its number of accesses, and their total number.

    The most accessed memories come first, then the newest.
    """
    query = MemoryQuery(states=repository.ALL_STATES)
    statement = _by_count(ListCriteria.of(caller, query), MemoryAccessLog)
    return await _page(database, caller, query, statement, {"app_id": app_id, "offset": offset, "limit": limit})


async def _page(
    database: Database, caller: Caller, query: MemoryQuery, statement: CompiledStatement, binds: dict[str, Any]
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    rows = await pages.planned_rows(database, statement, caller.parameters | binds)
    times = {id_: times for _, id_, times in rows if id_ is not None}
    records = await pages.fetch_records(database, ListAccess(caller), query, list(times))
    return [(record, times[record.id]) for record in records], rows[0][0]


@lru_cache(maxsize=16)
def _own_categories(owner: bool, default: Default) -> CompiledStatement:
    """The categories of a memory that the caller may read. The user themself may read it in any state."""
    states = repository.ALL_STATES if owner else (State.ACTIVE,)
    categories = select(MemoryCategory.category_id).where(MemoryCategory.memory_id == Memory.id).correlate(Memory)
    query = select(func.array(categories.scalar_subquery(), type_=ARRAY(Uuid))).where(
        Memory.id == bindparam("memory_id", type_=Uuid),
        readable_by(Caller.anyone(owner=owner, default=default), Memory, states=states),
    )
    return CompiledStatement(query, plain=True)


@lru_cache(maxsize=64)
def _by_count(criteria: ListCriteria, table: type[MemoryCategory | MemoryAccessLog]) -> CompiledStatement:
    """The ids and counts of a range of the memories by the number of their rows in a table, as `with_total`."""
    memory_id: Any = table.memory_id
    which = _ACCESSED if table is MemoryAccessLog else _SHARED
    columns = memory_id.label("memory_id"), func.count().label("times")
    counts = select(*columns).where(which).group_by(memory_id).subquery("counts")
    matches = select(Memory.id, Memory.created_at, counts.c.times).join(counts, counts.c.memory_id == Memory.id)

    def most_first(rows: Any) -> tuple[Any, ...]:
        return rows.times.desc(), rows.created_at.desc(), rows.id.desc()

    query = statements.with_total(matches.where(criteria.readable), most_first, "id", "times")
    return CompiledStatement(query, plain=True)

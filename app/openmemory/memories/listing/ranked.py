"""Memories ordered by a count: related memories by shared categories, and the memories an app accessed most often."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Integer,
    Select,
    Uuid,
    and_,
    bindparam,
    case,
    func,
    literal_column,
    select,
)

from openmemory.access.readable import hidden_from, readable_by
from openmemory.audit.models import MemoryAccessLog
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.database.id_partitions import IdPartition
from openmemory.identity.caller import Caller
from openmemory.memories import repository
from openmemory.memories.listing import pages, statements
from openmemory.memories.listing.criteria import OWN_ASSIGNMENTS, ListCriteria
from openmemory.memories.listing.pages import MAX_SORTED_HITS, ListAccess, ListedPage, Slice
from openmemory.memories.models import Memory, MemoryCategory
from openmemory.memories.schemas import MemoryQuery, MemoryRecord
from openmemory.memories.state import State

_SOURCE: Any = bindparam("source", type_=Uuid)
_SOURCES: Any = bindparam("sources", type_=ARRAY(Uuid))
_NEWEST_FIRST = statements.in_order("created_at", descending=True)


class Of(StrEnum):
    """The rows that are counted for each memory. The statements bind `source` or `sources`."""

    CATEGORY = "category"
    """Its assignments to the category `source`, of which there is at most one."""
    CATEGORIES = "categories"
    """Its assignments to the categories `sources`."""
    ACCESSES = "accesses"
    """Its accesses by the app `source`."""


class _Level(NamedTuple):
    """The number of memories with the same count, and their ids, 16 bytes each, if they are few."""

    times: int
    size: int
    members: bytes | None


async def related(database: Database, caller: Caller, memory_id: UUID, wanted: Slice) -> ListedPage | None:
    """A range of the memories that share categories with one memory, and their total number. None if the caller may not
    read that memory.

    The memories with most shared categories come first, then the newest. The user themself sees all memories that are
    not deleted, an app only active ones.
    """
    states = repository.KEPT_STATES if caller.owner else (State.ACTIVE,)
    query = MemoryQuery(states=states)
    own = _own_categories(caller.owner, caller.default)
    async with database.statement() as tx:
        found = await own.rows(tx, caller.parameters | {"memory_id": memory_id})
    if not found:
        return None
    categories = found[0][0]
    if not categories:
        return ListedPage(await pages.shown(database, ListAccess(caller), query, []), 0)
    of = Of.CATEGORY if len(categories) == 1 else Of.CATEGORIES
    binds = {"source": categories[0], "sources": categories, "memory_id": memory_id}
    records, total = await _page(database, caller, query, of, binds, wanted=wanted)
    return ListedPage([record for record, _ in records], total)


async def accessed(
    database: Database, caller: Caller, app_id: UUID, wanted: Slice
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """A range of the memories that an app accessed, each with its number of accesses, and their total number.

    The most accessed memories come first, then the newest.
    """
    query = MemoryQuery(states=repository.ALL_STATES)
    return await _page(database, caller, query, Of.ACCESSES, {"source": app_id}, wanted=wanted)


async def _page(
    database: Database, caller: Caller, query: MemoryQuery, of: Of, binds: dict[str, Any], *, wanted: Slice
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """A page of the matching memories, by the number of their rows, with these parameters bound."""
    asked, binds = ListCriteria.of(caller, query), caller.parameters | binds

    async def rows(statement: CompiledStatement, **more: Any) -> list[Any]:
        async with database.planned() as tx:
            return await statement.rows(tx, binds | more)

    levels = [_levels(of, asked, each) for each in IdPartition]
    before = 0
    often: dict[UUID, int] = {}
    for level in _together(await asyncio.gather(*(rows(statement, few=MAX_SORTED_HITS) for statement in levels))):
        part = wanted.within(before, level.size)
        if part.limit > 0:
            if level.members is None:
                part = part.of(level.size)
                newest = _newest(of, asked, backwards=part.backwards)
                found = await rows(newest, times=level.times, **part.binds)
            else:
                found = await rows(_NEWEST_FIRST, ids=_ids(level.members), **part.binds)
            often |= dict.fromkeys((id_ for (id_,) in (found[::-1] if part.backwards else found)), level.times)
        before += level.size
    records = await pages.shown(database, ListAccess(caller), query, list(often))
    return [(record, often[record.id]) for record in records], before


def _together(partitions: Sequence[Sequence[Any]]) -> list[_Level]:
    """Merges the levels of both id partitions, highest count first."""
    levels: dict[int, _Level] = {}
    for level in itertools.starmap(_Level, itertools.chain(*partitions)):
        same = levels.get(level.times, _Level(level.times, 0, b""))
        few = None if level.members is None or same.members is None else same.members + level.members
        levels[level.times] = _Level(level.times, same.size + level.size, few)
    return sorted(levels.values(), reverse=True, key=lambda level: level.times)


def _ids(members: bytes) -> list[UUID]:
    return [UUID(bytes=members[at : at + 16]) for at in range(0, len(members), 16)]


def _rows(of: Of) -> tuple[Any, ColumnElement[bool]]:
    """The column of memory ids in the table that is counted, and the condition for the rows that count."""
    if of is Of.ACCESSES:
        return MemoryAccessLog.memory_id, MemoryAccessLog.app_id == _SOURCE
    category: Any = MemoryCategory.category_id
    assigned = category == _SOURCE if of is Of.CATEGORY else category == func.any(_SOURCES)
    other = MemoryCategory.memory_id != bindparam("memory_id", type_=Uuid)
    return MemoryCategory.memory_id, and_(OWN_ASSIGNMENTS, assigned, other)


def _per_memory(of: Of, partition: IdPartition) -> Select[Any]:
    """The count of each memory in one id partition."""
    memory_id, which = _rows(of)
    once = of is Of.CATEGORY
    times = literal_column("1::bigint") if once else func.count()
    query = select(memory_id.label("memory_id"), times.label("times")).where(which, partition.of(memory_id))
    return query if once else query.group_by(memory_id)


@lru_cache(maxsize=16)
def _own_categories(owner: bool, default: Any) -> CompiledStatement:
    """The categories of a memory that the caller may read. The user themself may read it in any state."""
    states = repository.ALL_STATES if owner else (State.ACTIVE,)
    categories = select(MemoryCategory.category_id).where(MemoryCategory.memory_id == Memory.id).correlate(Memory)
    query = select(func.array(categories.scalar_subquery(), type_=ARRAY(Uuid))).where(
        Memory.id == bindparam("memory_id", type_=Uuid),
        readable_by(Caller.anyone(owner=owner, default=default), Memory, states=states),
    )
    return CompiledStatement(query, plain=True)


@lru_cache(maxsize=64)
def _levels(of: Of, asked: ListCriteria, partition: IdPartition) -> CompiledStatement:
    """The number of memories for each count in one id partition, with their ids if there are at most `few`.

    Usually few memories are hidden, so the hidden ones are looked up and excluded. A large level has no ids here: a
    scan in list order finds a page of it quickly.
    """
    hidden = select(Memory.id).where(hidden_from(asked.caller, Memory, states=asked.states), partition.of(Memory.id))
    each = _per_memory(of, partition).subquery("each")
    visible = select(each).where(each.c.memory_id.not_in(hidden)).subquery("visible")
    ids = func.string_agg(func.uuid_send(visible.c.memory_id), literal_column("''::bytea"))
    few = case((func.count() <= bindparam("few", type_=Integer), ids))
    return CompiledStatement(
        select(visible.c.times, func.count(), few).group_by(visible.c.times), plain=True, binary=True
    )


@lru_cache(maxsize=64)
def _newest(of: Of, asked: ListCriteria, *, backwards: bool) -> CompiledStatement:
    """The ids of a range of one level, newest or oldest first. Binds `times`, `offset` and `limit`."""
    memory_id, which = _rows(of)
    of_one = select(func.count()).where(memory_id == Memory.id, which).correlate(Memory).scalar_subquery()
    level = and_(asked.readable, of_one == bindparam("times", type_=BigInteger))
    order = [each.asc() if backwards else each.desc() for each in (Memory.created_at, Memory.id)]
    query = select(Memory.id).where(level).order_by(*order)
    limit, offset = (bindparam(name, type_=Integer) for name in ("limit", "offset"))
    return CompiledStatement(query.limit(limit).offset(offset), plain=True)

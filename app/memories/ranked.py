"""Memories in the order of how often something is true of them: related ones, and what an app accessed."""

from __future__ import annotations

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
    cast,
    func,
    literal_column,
    select,
)

from app.access.caller import Caller
from app.access.readable import hidden_from, readable_by
from app.audit.models import MemoryAccessLog
from app.database import Database
from app.memories import listing, repository
from app.memories.asked import OWN_FILINGS, Asked
from app.memories.listing import FEW, Found, Look, Slice
from app.memories.models import Memory, MemoryCategory, State
from app.memories.schemas import MemoryQuery, MemoryRecord
from app.prepared import Prepared

_SOURCE: Any = bindparam("source", type_=Uuid)
_SOURCES: Any = bindparam("sources", type_=ARRAY(Uuid))
_BEGIN, _END, _FEW = (bindparam(name, type_=Integer) for name in ("begin", "end", "few"))


class Of(StrEnum):
    """What is counted of each memory: rows of one table. The statements bind `source`, or `sources`."""

    CATEGORY = "category"
    """Its filings under the category `source`, of which there is at most one."""
    CATEGORIES = "categories"
    """Its filings under the categories `sources`."""
    ACCESSES = "accesses"
    """Accesses of the app `source` to it."""


class _Rows(NamedTuple):
    """Rows that tell of a memory, and which of them count."""

    memory_id: Any
    which: ColumnElement[bool]


class _Counted(NamedTuple):
    """What is counted of which source, in which states, with what this binds."""

    of: Of
    asked: Asked
    query: MemoryQuery
    binds: dict[str, Any]


async def related(database: Database, caller: Caller, memory_id: UUID, wanted: Slice) -> Found | None:
    """Some of the memories that share categories with one, and how many there are in all; None if the caller may not
    read that one.

    Those that share most come first, of these the newest. Of a user themself whatever is not deleted, an app's are
    active.
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
        return Found(await listing.shown(database, Look(caller), query, []), 0)
    of = Of.CATEGORY if len(categories) == 1 else Of.CATEGORIES
    binds = {"source": categories[0], "sources": categories, "memory_id": memory_id}
    records, total = await _page(database, caller, _Counted(of, Asked.of(caller, query), query, binds), wanted)
    return Found([record for record, _ in records], total)


async def accessed(
    database: Database, caller: Caller, app_id: UUID, wanted: Slice
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    """Some of the memories that an app accessed with the number of times, and how many there are in all.

    Those accessed most often come first, of these the newest.
    """
    query = MemoryQuery(states=repository.ALL_STATES)
    counted = _Counted(Of.ACCESSES, Asked.of(caller, query), query, {"source": app_id})
    return await _page(database, caller, counted, wanted)


async def _page(
    database: Database, caller: Caller, counted: _Counted, wanted: Slice
) -> tuple[list[tuple[MemoryRecord, int]], int]:
    binds = caller.parameters | counted.binds | {"begin": wanted.offset, "end": wanted.offset + wanted.limit}
    before = 0
    often: dict[UUID, int] = {}
    async with database.planned() as tx:
        levels = await _levels(counted.of, counted.asked).rows(tx, binds | {"few": FEW})
        for times, size, listed in levels:
            ids = listed or []
            part = wanted.within(before, size)
            if listed is None and part.limit > 0:
                part = part.of(size)
                newest = _newest(counted.of, counted.asked, backwards=part.backwards)
                ids = [id_ for (id_,) in await newest.rows(tx, binds | part.binds | {"times": times})]
                ids = ids[::-1] if part.backwards else ids
            often |= dict.fromkeys(ids, times)
            before += size
    records = await listing.shown(database, Look(caller), counted.query, list(often))
    return [(record, often[record.id]) for record in records], before


def _rows(of: Of) -> _Rows:
    if of is Of.ACCESSES:
        return _Rows(MemoryAccessLog.memory_id, MemoryAccessLog.app_id == _SOURCE)
    category: Any = MemoryCategory.category_id
    filed = category == _SOURCE if of is Of.CATEGORY else category == func.any(_SOURCES)
    other = MemoryCategory.memory_id != bindparam("memory_id", type_=Uuid)
    return _Rows(MemoryCategory.memory_id, and_(OWN_FILINGS, filed, other))


def _per_memory(of: Of) -> Select[Any]:
    """How many there are of each memory."""
    memory_id, which = _rows(of)
    once = of is Of.CATEGORY
    times = literal_column("1::bigint") if once else func.count()
    query = select(memory_id.label("memory_id"), times.label("times")).where(which)
    return query if once else query.group_by(memory_id)


@lru_cache(maxsize=16)
def _own_categories(owner: bool, default: Any) -> Prepared:
    """The categories of a memory that the caller may read, in any state if it is their own."""
    states = repository.ALL_STATES if owner else (State.ACTIVE,)
    categories = select(MemoryCategory.category_id).where(MemoryCategory.memory_id == Memory.id).correlate(Memory)
    query = select(func.array(categories.scalar_subquery(), type_=ARRAY(Uuid))).where(
        Memory.id == bindparam("memory_id", type_=Uuid),
        readable_by(Caller.anyone(owner=owner, default=default), Memory, states=states),
    )
    return Prepared(query, plain=True)


@lru_cache(maxsize=64)
def _levels(of: Of, asked: Asked) -> Prepared:
    """How many memories there are of each number of times, most times first, and of small levels the wanted ids.

    What may not be read is usually little, so it is that which is looked up and left out. A large level has no ids
    here: a page of it is met soon by looking at one memory after the other.
    """
    hidden = select(Memory.id).where(hidden_from(asked.caller, Memory, states=asked.states))
    each = _per_memory(of).subquery("each")
    visible = select(each).where(each.c.memory_id.not_in(hidden)).subquery("visible")
    size, times = func.count().label("size"), visible.c.times
    upto = cast(func.sum(func.count()).over(order_by=times.desc()), BigInteger).label("upto")
    members = case((func.count() <= _FEW, func.array_agg(visible.c.memory_id))).label("members")
    levels = select(times, size, upto, members).group_by(times).subquery("levels")
    begin = levels.c.upto - levels.c.size
    skip = func.greatest(literal_column("0"), _BEGIN - begin)
    newest = (
        select(Memory.id)
        .where(Memory.id == func.any(levels.c.members))
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .offset(skip)
        .limit(_END - begin - skip)
        .correlate(levels)
        .scalar_subquery()
    )
    is_wanted = (levels.c.upto > _BEGIN) & (begin < _END)
    ids = case((is_wanted & levels.c.members.is_not(None), func.array(newest, type_=ARRAY(Uuid))))
    return Prepared(select(levels.c.times, levels.c.size, ids).order_by(levels.c.times.desc()), plain=True)


@lru_cache(maxsize=64)
def _newest(of: Of, asked: Asked, *, backwards: bool) -> Prepared:
    """The ids of some memories of a level, newest first, or oldest first. Binds `times`, `offset` and `limit`."""
    memory_id, which = _rows(of)
    of_one = select(func.count()).where(memory_id == Memory.id, which).correlate(Memory).scalar_subquery()
    level = and_(asked.readable, of_one == bindparam("times", type_=BigInteger))
    order = [each.asc() if backwards else each.desc() for each in (Memory.created_at, Memory.id)]
    query = select(Memory.id).where(level).order_by(*order)
    limit, offset = (bindparam(name, type_=Integer) for name in ("limit", "offset"))
    return Prepared(query.limit(limit).offset(offset), plain=True)

"""Memories as of an earlier time, and what changed between two times.

Rights are those of a search as of a time (`sql/as_of.py`): it never grants more access than now.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import cache
from typing import Any
from uuid import UUID

from sqlalchemy import (
    DateTime,
    Integer,
    Uuid,
    and_,
    bindparam,
    case,
    literal_column,
    null,
    select,
    tuple_,
    union_all,
)

from openmemory.access.models import App
from openmemory.access.readable import readable_by
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Database
from openmemory.database.retry import retry_on_conflict
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller, Default
from openmemory.memories import validation
from openmemory.memories.models import Memory, MemoryRevision, MemoryStatusHistory
from openmemory.memories.repository import ALL_STATES, CATEGORY_NAMES
from openmemory.memories.state import State
from openmemory.search.sql.as_of import AS_OF, as_of_state, findable, time_of
from openmemory.search.timeline.schemas import MAX_PAGE_SIZE, WEEK, Change, Changes, MemoriesThen, MemoryThen, Place

_LAST = UUID(int=2**128 - 1)


class Timeline:
    """Lists memories as of a time, and changes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def first(self, caller: Caller) -> datetime | None:
        """Returns when the oldest memory of the user was created that the caller may read."""
        caller.may_read()
        async with self._database.statement() as tx:
            rows = await _first(caller.owner, caller.default).rows(tx, caller.parameters)
        return rows[0][0] if rows else None

    @retry_on_conflict
    async def then(self, caller: Caller, as_of: datetime, *, after: str | None = None, size: int = 50) -> MemoriesThen:
        """Returns a page of the memories that were active at a time, as they were then, and logs each access.

        Raises:
            Invalid: the time or the size cannot be used.
        """
        caller.may_read()
        as_of = time_of(as_of, "as_of", caller.timezone)
        validation.between(size, "size", 1, MAX_PAGE_SIZE)
        values = {
            **caller.parameters,
            **_from(after, as_of),
            "as_of": as_of,
            "size": size + 1,
            **access_log.parameters(caller, AccessType.LIST),
            **audit_log.parameters(caller, AuditAction.MEMORY_LIST, detail={"as_of": as_of.isoformat()}),
        }
        async with self._database.statement() as tx:
            rows = await _then(caller.owner, caller.default).rows(tx, values)
        items = [MemoryThen.model_validate(row) for row in rows[:size]]
        more = len(rows) > size
        return MemoriesThen(items=items, next=Place(items[-1].created_at, items[-1].id).text if more else None)

    @retry_on_conflict
    async def changes(
        self, caller: Caller, since: datetime | None, until: datetime, *, after: str | None = None, size: int = 50
    ) -> Changes:
        """Returns a page of what changed between two times. Without `since`, it is a week before `until`.

        Raises:
            Forbidden: the caller is an app. Earlier texts may have been hidden from it.
            Invalid: a time or the size cannot be used.
        """
        caller.must_be_owner("see what changed", everywhere=False)
        caller.may_read()
        until = time_of(until, "until", caller.timezone)
        since = until - WEEK if since is None else time_of(since, "since", caller.timezone)
        if since > until:
            raise Invalid("since", "must not be later than `until`")
        validation.between(size, "size", 1, MAX_PAGE_SIZE)
        place = _from(after, until)
        values = {**caller.parameters, **place, "since": since, "until": until, "size": size + 1}
        async with self._database.transaction() as tx:
            rows = await _changes(caller.default).rows(tx, values)
            items = [Change.model_validate(row) for row in rows[:size]]
            ids = list(dict.fromkeys(item.memory_id for item in items))
            await access_log.record(tx, caller, AccessType.LIST, ids, {"part": "changes"})
        return Changes(items=items, next=Place(items[-1].at, items[-1].id).text if len(rows) > size else None)


def _from(after: str | None, end: datetime) -> dict[str, Any]:
    """The parameters of a page: where it begins, or the end of the time."""
    place = Place.of(after) if after else Place(end, _LAST)
    return {"after_at": place.at.astimezone(UTC), "after_id": place.id}


_AFTER: Any = tuple_(bindparam("after_at", type_=DateTime(timezone=True)), bindparam("after_id", type_=Uuid))
_SIZE = bindparam("size", type_=Integer)
_MINE = Memory.user_id == bindparam("caller_user_id", type_=Uuid)


@cache
def _first(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    may_read = readable_by(caller, Memory, states=ALL_STATES if owner else (State.ACTIVE,))
    oldest = select(Memory.created_at).where(_MINE, may_read).order_by(Memory.created_at, Memory.id)
    return CompiledStatement(oldest.limit(literal_column("1")), plain=True)


@cache
def _then(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    was = as_of_state(caller)
    source, may_find = findable(caller, was)
    # An index gives the memories in this order, and the statement stops when the page is full. Without OFFSET,
    # PostgreSQL would look up the state of every memory first and sort afterwards.
    newest = (
        select(Memory.id, Memory.created_at)
        .where(_MINE, Memory.created_at <= AS_OF, tuple_(Memory.created_at, Memory.id) < _AFTER)
        .order_by(Memory.created_at.desc(), Memory.id.desc())
        .offset(literal_column("0"))
        .subquery("newest")
    )
    readable = (
        select(
            Memory.id, was.content.label("content"), App.name.label("app_name"), Memory.namespace, Memory.kind,
            Memory.created_at, was.updated_at.label("updated_at"), Memory.state, was.same.label("same"),
            CATEGORY_NAMES.label("categories"),
        )
        .select_from(source)
        .join(newest, newest.c.id == Memory.id)
        .join(App, App.id == Memory.app_id)
        .where(may_find)
        .order_by(newest.c.created_at.desc(), newest.c.id.desc())
        .limit(_SIZE)
        .cte("readable")
        .prefix_with("MATERIALIZED")
    )  # fmt: skip
    logs = access_log.inserted(readable, literal_column("'{}'::jsonb")), audit_log.inserted(readable)
    order = readable.c.created_at.desc(), readable.c.id.desc()
    return CompiledStatement(select(readable).add_cte(*logs).order_by(*order))


@cache
def _changes(default: Default) -> CompiledStatement:
    owner = Caller.anyone(owner=True, default=default)
    may_read = readable_by(owner, Memory, states=ALL_STATES)
    parts = [_newest(rows, may_read) for rows in (MemoryStatusHistory, MemoryRevision)]
    both = union_all(*(select(part) for part in parts)).subquery("both")
    query = select(both, App.name.label("app_name")).outerjoin(App, App.id == both.c.app_id)
    return CompiledStatement(query.order_by(both.c.at.desc(), both.c.id.desc()).limit(_SIZE))


def _newest(rows: Any, may_read: Any) -> Any:
    """The newest changes of the states, or of the texts, of the caller's memories."""
    times = [bindparam(name, type_=DateTime(timezone=True)) for name in ("since", "until")]
    text = rows is MemoryRevision
    columns = (
        rows.id, rows.memory_id, rows.changed_at.label("at"), (_TEXT if text else _STATE).label("what"),
        (rows.new_text if text else Memory.content).label("content"),
        (rows.old_text if text else null()).label("before"), rows.app_id, Memory.superseded_by,
    )  # fmt: skip
    # The first revision is the text with which a memory was added.
    which = (rows.revision > literal_column("1"),) if text else ()
    return (
        select(*columns)
        .join(Memory, Memory.id == rows.memory_id)
        .where(
            rows.changed_by == bindparam("caller_user_id", type_=Uuid), rows.changed_at.between(*times), *which,
            tuple_(rows.changed_at, rows.id) < _AFTER, _MINE, may_read,
        )
        .order_by(rows.changed_at.desc(), rows.id.desc())
        .limit(_SIZE)
        .subquery()
    )  # fmt: skip


def _word(word: str) -> Any:
    return literal_column(f"'{word}'::text")


_TEXT = _word("changed")


def _in(state: State) -> Any:
    return MemoryStatusHistory.new_state == literal_column(f"'{state.value}'::memory_state")


_STATE = case(
    (MemoryStatusHistory.old_state.is_(None), _word("added")),
    (MemoryStatusHistory.reason == _word("expired"), _word("expired")),
    (and_(_in(State.ARCHIVED), Memory.superseded_by.is_not(None)), _word("superseded")),
    (_in(State.ARCHIVED), _word("archived")),
    (_in(State.PAUSED), _word("paused")),
    (_in(State.DELETED), _word("deleted")),
    else_=_word("restored"),
)

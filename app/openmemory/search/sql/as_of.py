"""Searches as of an earlier time: the memories that existed then, with their texts of that time.

The history of states shows which memories were active. The revisions show their texts: the text that the first later
revision replaced. A hit of the current index and words counts only if its text is unchanged since then. The others are
searched for separately, by the words that they had: memories that were rewritten since and, if the user themself
searches, those that were paused, archived or deleted since, which may also have vectors.

This never grants more access than now. An app sees only memories that are active and allowed now, and earlier texts
only if it wrote or replaced them and the rules allow it their app, as in a memory's history. The user themself also
sees archived memories. Expired and erased memories are gone. Namespaces, categories and the other fields of a filter
are the current ones, and so are the word frequencies.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

from sqlalchemy import ColumnElement, DateTime, Uuid, and_, bindparam, case, func, literal_column, or_, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import readable_by, text_readable_by
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.errors import Invalid
from openmemory.identity.caller import Caller, Default
from openmemory.memories.intake import STATE
from openmemory.memories.models import ACTIVE, Memory, MemoryRevision, MemoryStatusHistory
from openmemory.memories.repository import ALL_STATES, author
from openmemory.memories.state import State
from openmemory.serialization.zones import placed

AS_OF: Any = bindparam("as_of", type_=DateTime(timezone=True))


EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
"""The earliest time that is accepted."""


def time_of(at: datetime, field: str, zone: ZoneInfo) -> datetime:
    """Returns a time in UTC; without an offset it is of the time zone `zone`.

    Raises:
        Invalid: it lies before 1970 or in the future.
    """
    at = placed(at, zone)
    if not EARLIEST <= at <= datetime.now(UTC):
        raise Invalid(field, "must lie between 1970 and now")
    return at


def states(owner: bool) -> Sequence[str]:
    """The current states of memories that the caller may find as they were then."""
    return [state.value for state in ALL_STATES] if owner else [State.ACTIVE.value]


class AsOfState(NamedTuple):
    """The state of a memory at the time that is bound as `as_of`, as parts of a statement over `Memory`.

    `there`: it existed, was active, and the caller may read its text. The other parts are that text and its data.
    """

    there: ColumnElement[bool]
    same: ColumnElement[bool]
    """Its text has not changed since then."""
    content: ColumnElement[str]
    metadata: ColumnElement[Any]
    updated_at: ColumnElement[datetime]
    laterals: Any
    """To be joined laterally to `Memory`."""


def as_of_state(caller: Caller) -> AsOfState:
    """The parts for callers of the same kind: the user themself, or an app."""
    history, revision, before = MemoryStatusHistory, MemoryRevision, MemoryRevision.__table__.alias("before")
    of_memory = history.memory_id == Memory.id
    earlier_states = select(history.new_state, history.changed_at).where(of_memory, history.changed_at <= AS_OF)
    last_earlier_state = earlier_states.order_by(history.changed_at.desc(), history.id.desc()).limit(
        literal_column("1")
    )
    later_states = select(history.old_state).where(of_memory, history.changed_at > AS_OF)
    next_state = later_states.order_by(history.changed_at, history.id).limit(literal_column("1"))
    earlier_state = last_earlier_state.correlate(Memory).lateral("entered")
    # The first text that was replaced later is the one of that time.
    replacement = (
        select(
            revision.old_text.label("content"),
            before.c.metadata.label("metadata"),
            revision.app_id.label("by"),
            author(revision.memory_id, revision.revision - 1).label("of"),
        )
        .outerjoin(before, and_(before.c.memory_id == revision.memory_id, before.c.revision == revision.revision - 1))
        .where(revision.memory_id == Memory.id, revision.changed_at > AS_OF, revision.old_text.is_not(None))
        .order_by(revision.revision)
        .limit(literal_column("1"))
        .correlate(Memory)
        .lateral("replaced")
    )
    last_write = select(func.max(revision.changed_at)).where(
        revision.memory_id == Memory.id, revision.changed_at <= AS_OF
    )
    was = func.coalesce(earlier_state.c.new_state, next_state.correlate(Memory).scalar_subquery(), Memory.state)
    app: Any = bindparam("caller_app_id", type_=Uuid())
    own = func.coalesce(or_(replacement.c.by == app, replacement.c.of == app), literal_column("false"))
    is_rewritten = replacement.c.content.is_not(None)
    may_read_text = or_(~is_rewritten, and_(own, text_readable_by(caller, Memory, replacement.c.of)))
    text_is_readable = true() if caller.owner else may_read_text
    return AsOfState(
        there=and_(Memory.created_at <= AS_OF, was == ACTIVE, text_is_readable),
        same=func.coalesce(replacement.c.content == Memory.content, literal_column("true")),
        content=func.coalesce(replacement.c.content, Memory.content),
        metadata=case((is_rewritten, func.coalesce(replacement.c.metadata, Memory.metadata_)), else_=Memory.metadata_),
        updated_at=func.greatest(
            Memory.created_at, earlier_state.c.changed_at, last_write.correlate(Memory).scalar_subquery()
        ),
        laterals=(earlier_state, replacement),
    )


def join_state(source: Any, parts: AsOfState) -> Any:
    """A FROM clause with `Memory`, joined with the parts of `as_of_state`."""
    for part in parts.laterals:
        source = source.join(part, true(), isouter=True)
    return source


def findable(
    caller: Caller, was: AsOfState | None, allowed: ColumnElement[bool] | None = None
) -> tuple[Any, ColumnElement[bool]]:
    """A FROM clause with `Memory`, and a predicate for the rows that the caller may find: now, or as they `was`
    then. Nobody finds the state of a project. `allowed`: see `readable_by`."""
    findable_kind = Memory.kind != literal_column(f"'{STATE}'")
    if was is None:
        return Memory.__table__, and_(readable_by(caller, Memory, allowed=allowed), findable_kind)
    may_read = readable_by(caller, Memory, states=states(caller.owner), allowed=allowed)
    return join_state(Memory.__table__, was), and_(may_read, was.there, findable_kind)


async def unchanged_since(tx: Tx, caller: Caller, ids: Sequence[UUID], as_of: datetime) -> set[UUID]:
    """Those of the memories that existed then, have the same text today, and that the caller may find."""
    rows = await _as_then(caller.owner, caller.default).rows(
        tx, {**caller.parameters, "ids": list(ids), "as_of": as_of}
    )
    return {id_ for (id_,) in rows}


@cache
def _as_then(owner: bool, default: Default) -> CompiledStatement:
    caller = Caller.anyone(owner=owner, default=default)
    parts = as_of_state(caller)
    is_requested = Memory.id == func.any(bindparam("ids", type_=ARRAY(Uuid())))
    source, may_find = findable(caller, parts)
    return CompiledStatement(
        select(Memory.id).select_from(source).where(is_requested, may_find, parts.same), plain=True
    )

"""A search as if it had been asked at an earlier time: which memories there were, and what they said.

What was active then is told by the history of states, what was said by the revisions: the text that the first later
revision replaced. What today's index and words propose counts only if its text is still the one of then. The others are
looked for apart, by the words that they had: what was rewritten since, and, where the user themself asks, what was
paused, archived or deleted since, for which there may be vectors too.

Nobody reads more by it than they may read now: an app what is active and allowed now, and earlier texts only if it
wrote or replaced them, as in a memory's history; the user themself what was put away too. What has expired or was
erased is gone. Namespaces, categories and what else a filter asks for are today's, and so is how common a word is.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from functools import cache
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, DateTime, Uuid, and_, bindparam, case, func, literal_column, or_, select, true
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import readable_by
from openmemory.database.compiled import Prepared
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller, Default
from openmemory.memories.models import Memory, MemoryRevision, MemoryStatusHistory, State
from openmemory.memories.repository import ALL_STATES

AS_OF: Any = bindparam("as_of", type_=DateTime(timezone=True))


def states(owner: bool) -> Sequence[str]:
    """In which states memories may be today that the caller may find as they were then."""
    return [state.value for state in ALL_STATES] if owner else [State.ACTIVE.value]


class Then(NamedTuple):
    """What a memory was at the time that is bound as `as_of`, as parts of a statement over `Memory`: whether it was
    there, active and the caller may know what it said; and what that was."""

    there: ColumnElement[bool]
    same: ColumnElement[bool]
    """Its text is still that of then."""
    content: ColumnElement[str]
    metadata: ColumnElement[Any]
    updated_at: ColumnElement[datetime]
    joined: Any
    """To be joined laterally to `Memory`."""


def then(owner: bool) -> Then:
    """The parts for the user themself, or for an app."""
    history, revision, before = MemoryStatusHistory, MemoryRevision, MemoryRevision.__table__.alias("before")
    of_memory = history.memory_id == Memory.id
    entered = select(history.new_state, history.changed_at).where(of_memory, history.changed_at <= AS_OF)
    entered_as = entered.order_by(history.changed_at.desc(), history.id.desc()).limit(literal_column("1"))
    left = select(history.old_state).where(of_memory, history.changed_at > AS_OF)
    left_as = left.order_by(history.changed_at, history.id).limit(literal_column("1"))
    known = entered_as.correlate(Memory).lateral("entered")
    # The first text that was replaced later is that of then.
    replaced = (
        select(
            revision.old_text.label("content"),
            before.c.metadata.label("metadata"),
            revision.app_id.label("by"),
            before.c.app_id.label("of"),
        )
        .outerjoin(before, and_(before.c.memory_id == revision.memory_id, before.c.revision == revision.revision - 1))
        .where(revision.memory_id == Memory.id, revision.changed_at > AS_OF, revision.old_text.is_not(None))
        .order_by(revision.revision)
        .limit(literal_column("1"))
        .correlate(Memory)
        .lateral("replaced")
    )
    written = select(func.max(revision.changed_at)).where(revision.memory_id == Memory.id, revision.changed_at <= AS_OF)
    was = func.coalesce(known.c.new_state, left_as.correlate(Memory).scalar_subquery(), Memory.state)
    app: Any = bindparam("caller_app_id", type_=Uuid())
    own = func.coalesce(or_(replaced.c.by == app, replaced.c.of == app), literal_column("false"))
    rewritten = replaced.c.content.is_not(None)
    told = true() if owner else or_(~rewritten, own)
    return Then(
        there=and_(Memory.created_at <= AS_OF, was == literal_column("'active'::memory_state"), told),
        same=func.coalesce(replaced.c.content == Memory.content, literal_column("true")),
        content=func.coalesce(replaced.c.content, Memory.content),
        metadata=case((rewritten, func.coalesce(replaced.c.metadata, Memory.metadata_)), else_=Memory.metadata_),
        updated_at=func.greatest(Memory.created_at, known.c.changed_at, written.correlate(Memory).scalar_subquery()),
        joined=(known, replaced),
    )


def with_then(source: Any, parts: Then) -> Any:
    """A FROM clause that holds `Memory`, with what `then` needs."""
    for part in parts.joined:
        source = source.join(part, true(), isouter=True)
    return source


def findable(caller: Caller, was: Then | None) -> tuple[Any, ColumnElement[bool]]:
    """A FROM clause that holds `Memory`, and which of its rows the caller may find: now, or as they `was` then."""
    if was is None:
        return Memory.__table__, readable_by(caller, Memory)
    return with_then(Memory.__table__, was), and_(readable_by(caller, Memory, states=states(caller.owner)), was.there)


async def as_then(tx: Tx, caller: Caller, ids: Sequence[UUID], as_of: datetime) -> set[UUID]:
    """Those of the memories that were there then, say the same today, and that the caller may find."""
    rows = await _as_then(caller.owner, caller.default).rows(
        tx, {**caller.parameters, "ids": list(ids), "as_of": as_of}
    )
    return {id_ for (id_,) in rows}


@cache
def _as_then(owner: bool, default: Default) -> Prepared:
    caller = Caller.anyone(owner=owner, default=default)
    parts = then(owner)
    asked = Memory.id == func.any(bindparam("ids", type_=ARRAY(Uuid())))
    source, may_find = findable(caller, parts)
    return Prepared(select(Memory.id).select_from(source).where(asked, may_find, parts.same), plain=True)

"""The memories that a caller may move to another state, and the words for the move."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, and_, bindparam, or_, select

from openmemory.access.readable import is_visible, readable_by
from openmemory.audit.access_log import AccessType
from openmemory.identity.caller import Caller
from openmemory.memories.models import Memory, MemoryStatusHistory
from openmemory.memories.repository import ALL_STATES
from openmemory.memories.state import State

ACCESS = {
    State.DELETED: AccessType.DELETE,
    State.ACTIVE: AccessType.RESTORE,
    State.PAUSED: AccessType.PAUSE,
    State.ARCHIVED: AccessType.ARCHIVE,
}
"""The types of access that the log records."""


def movable(caller: Caller, target: State, rows: Any = Memory) -> ColumnElement[bool]:
    """The memories that a caller may move to `target`: all for the user, for an app what it may read or has archived.

    Nobody can read an expired memory. The user can still restore it by its id. The predicate binds the parameters of
    `readable_by`.
    """
    if caller.owner and target is State.ACTIVE:
        return and_(rows.user_id == bindparam("caller_user_id"), is_visible(rows))
    if caller.owner or target is not State.ACTIVE:
        return readable_by(caller, rows, states=ALL_STATES if caller.owner else (State.ACTIVE,))
    state_changed_by = (
        select(MemoryStatusHistory.app_id)
        .where(MemoryStatusHistory.memory_id == rows.id)
        .order_by(MemoryStatusHistory.changed_at.desc())
        .limit(1)
        .scalar_subquery()
    )
    own = or_(rows.state == State.ACTIVE, state_changed_by == bindparam("caller_app_id"))
    return and_(readable_by(caller, rows, states=ALL_STATES), own)

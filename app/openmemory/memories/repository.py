"""Reads of memories. Every read goes through `readable_by`."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, Select, case, false, func, literal_column, or_, select, true
from sqlalchemy.dialects.postgresql import aggregate_order_by
from sqlalchemy.orm import aliased

from openmemory.access.models import App, User
from openmemory.access.readable import is_visible, readable_by, text_readable_by
from openmemory.database.engine import Tx
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.memories.models import Category, Memory, MemoryCategory, MemoryRevision, MemoryStatusHistory
from openmemory.memories.schemas import MemoryRecord, Revision, StateChange
from openmemory.memories.state import State

ALL_STATES = tuple(State)
KEPT_STATES = (State.ACTIVE, State.PAUSED, State.ARCHIVED)
"""The states of memories that are not deleted."""

CATEGORY_NAMES = (
    select(
        func.coalesce(func.array_agg(aggregate_order_by(Category.name, Category.name)), literal_column("'{}'::text[]"))
    )
    .join(MemoryCategory, MemoryCategory.category_id == Category.id)
    .where(MemoryCategory.memory_id == Memory.id)
    .correlate(Memory)
    .scalar_subquery()
)

_writer = aliased(App)
_WRITERS_NAME = select(_writer.name).where(_writer.id == Memory.text_app_id).correlate(Memory).scalar_subquery()
TEXT_APP_NAME = case((Memory.text_app_id.is_(None), App.name), else_=func.coalesce(_WRITERS_NAME, App.name))
"""The name of the app that wrote the present text. `App` is the app that added the memory."""

COLUMNS = (
    Memory.id, Memory.user_id, Memory.app_id, App.name.label("app_name"), Memory.content,
    Memory.metadata_.label("metadata_"), Memory.state, Memory.created_at, Memory.updated_at, Memory.archived_at,
    Memory.deleted_at, Memory.namespace, Memory.thread_id, Memory.kind, Memory.key, Memory.importance, Memory.hash,
    Memory.expires_at, Memory.revision, CATEGORY_NAMES.label("categories"), Memory.labels,
    Memory.valid_from, Memory.valid_until, Memory.superseded_by, TEXT_APP_NAME.label("text_app_name"),
)  # fmt: skip
"""All columns of a memory, in the order of the fields of `MemoryRecord`."""

_STATE = MemoryRecord._fields.index("state")


def whole() -> Select[Any]:
    """Selects memories with all columns of `MemoryRecord` in one statement."""
    return select(*COLUMNS).join(App, App.id == Memory.app_id)


def record(row: Any) -> MemoryRecord:
    """Converts a row of `whole()`, from SQLAlchemy or from the driver, to a record. Ignores additional columns."""
    values = list(row[: len(COLUMNS)])
    values[_STATE] = State(values[_STATE])
    return MemoryRecord._make(values)


def no_memory() -> NotFound:
    """The error for an id that is unknown or not the caller's."""
    return NotFound("Memory not found", code="memory_not_found")


def author(memory: Any, revision: Any) -> ColumnElement[Any]:
    """The app that wrote the text which a memory had in a revision. That revision may have changed the metadata only.
    Both arguments are columns of the statement around, or constants."""
    revisions = aliased(MemoryRevision)
    changed = revisions.new_text.is_distinct_from(revisions.old_text)
    newest = (
        select(revisions.app_id)
        .where(revisions.memory_id == memory, revisions.revision <= revision, changed)
        .order_by(revisions.revision.desc())
        .limit(literal_column("1"))
    )
    return newest.correlate_except(revisions).scalar_subquery()


async def get(tx: Tx, caller: Caller, memory_id: UUID) -> MemoryRecord | None:
    """One memory that the caller may read. The user themself may read it in any state."""
    states = ALL_STATES if caller.owner else (State.ACTIVE,)
    query = whole().where(Memory.id == memory_id, readable_by(caller, Memory, states=states))
    row = (await tx.execute(query, caller.parameters)).one_or_none()
    return record(row) if row else None


async def states_of(tx: Tx, caller: Caller, ids: list[UUID]) -> dict[UUID, State]:
    """The states of those `ids` that belong to the caller's user, even if the caller's app may not read them."""
    mine = (Memory.user_id == caller.user_id, is_visible(Memory))
    query = select(Memory.id, Memory.state).where(Memory.id == func.any(ids), *mine)
    return {row.id: row.state for row in await tx.execute(query, caller.parameters)}


async def history(tx: Tx, caller: Caller, memory_id: UUID) -> tuple[list[StateChange], list[Revision]]:
    """All states and texts of a memory that the caller may read, oldest first.

    An app sees the texts that it wrote or replaced, and the current one. The others may have been hidden from it, as
    may those that it replaced by now: the rules on the app that wrote a text hold for it.
    """
    states = await tx.execute(
        select(
            MemoryStatusHistory.id, MemoryStatusHistory.old_state, MemoryStatusHistory.new_state,
            User.user_id.label("changed_by"), App.name.label("app_name"), MemoryStatusHistory.changed_at,
            MemoryStatusHistory.reason,
        )
        .join(User, User.id == MemoryStatusHistory.changed_by)
        .outerjoin(App, App.id == MemoryStatusHistory.app_id)
        .where(MemoryStatusHistory.memory_id == memory_id)
        .order_by(MemoryStatusHistory.changed_at, MemoryStatusHistory.id)
    )  # fmt: skip
    own = func.coalesce(MemoryRevision.app_id == caller.app_id, false())
    text, replaced = (
        text_readable_by(caller, Memory, author(MemoryRevision.memory_id, MemoryRevision.revision - back))
        for back in (0, 1)
    )
    present = MemoryRevision.revision == select(Memory.revision).where(Memory.id == memory_id).scalar_subquery()
    before = (
        MemoryRevision.old_text if caller.owner else case((own & replaced, MemoryRevision.old_text)).label("old_text")
    )
    revisions = await tx.execute(
        select(
            MemoryRevision.revision, before, MemoryRevision.new_text,
            MemoryRevision.metadata_.label("metadata_"), User.user_id.label("changed_by"),
            App.name.label("app_name"), MemoryRevision.changed_at,
        )
        .join(User, User.id == MemoryRevision.changed_by)
        .join(Memory, Memory.id == MemoryRevision.memory_id)
        .outerjoin(App, App.id == MemoryRevision.app_id)
        .where(MemoryRevision.memory_id == memory_id, true() if caller.owner else or_(own & text, present))
        .order_by(MemoryRevision.revision),
        caller.parameters,
    )  # fmt: skip
    return [StateChange.model_validate(row) for row in states], [Revision.model_validate(row) for row in revisions]

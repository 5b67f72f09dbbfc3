"""Keeps what changes of memories replaced, for a short time, and puts it back."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple
from uuid import UUID

from sqlalchemy import ColumnElement, Text, Uuid, bindparam, delete, exc, func, insert, literal, select, text
from sqlalchemy.dialects.postgresql import ARRAY

from openmemory.access.readable import is_visible
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.database.engine import Tx
from openmemory.database.sql_files import load_sql
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.index.models import ItemKind
from openmemory.index.sync import outbox
from openmemory.memories import changes
from openmemory.memories.lifecycle import transitions
from openmemory.memories.models import Memory, MemoryRevision, UndoEntry
from openmemory.memories.schemas import MemoryUpdate
from openmemory.memories.state import State

UNDO_FOR = timedelta(minutes=10)
"""The time for which a change can be undone."""

MANY = 1_000
"""The number of entries from which on the planner needs statistics of them."""

_UNDO_COLUMNS = ("state", "archived_at", "deleted_at", "expires_at", "valid_until", "superseded_by", "revision")
"""The columns that a change may replace, other than `updated_at`. The revision stands for the text."""

_REVERT = text(load_sql(__name__, "revert")).bindparams(
    bindparam("namespaces", type_=ARRAY(Text)), bindparam("user_id", type_=Uuid)
)


class Undone(NamedTuple):
    """Counts the memories that were restored, and those that stay as they are because they were changed since."""

    restored: int
    kept: int


async def remember(
    tx: Tx, action: UUID, where: ColumnElement[bool], values: Mapping[str, Any], *, category: UUID | None = None
) -> int:
    """Lock the memories that will change, and store what the action may replace. Returns their number.

    `values`: the parameters of `where`. `category`: the category that the action assigns.
    """
    columns = [getattr(Memory, name) for name in _UNDO_COLUMNS]
    selection = (
        select(Memory.id, *columns).where(where).order_by(Memory.id).with_for_update(key_share=True).cte("chosen")
    )
    entries = select(literal(action), *selection.c, literal(category, UndoEntry.category_id.type))
    names = ["action", "memory_id", *_UNDO_COLUMNS, "category_id"]
    stored_entries = insert(UndoEntry).from_select(names, entries).returning(UndoEntry.memory_id).cte("kept")
    count = await tx.scalar(select(func.count()).select_from(stored_entries), dict(values)) or 0
    if count > MANY:
        # PostgreSQL would plan the change as for the few entries that the table had before: 300 s for 100,000.
        await tx.execute(text("ANALYZE memory_undo"))
    return count


def changed_by(action: UUID) -> ColumnElement[bool]:
    """Matches the memories that an action changes."""
    return Memory.id.in_(select(UndoEntry.memory_id).where(UndoEntry.action == action))


async def revert(tx: Tx, caller: Caller, action: UUID, labels: changes.Flagging) -> Undone:
    """Make the memories of an action what they were before, unless they were changed since. `labels`: those of texts.

    Raises:
        NotFound: there is no such action of the caller's user, or it is too old, or it was undone.
        ConflictError: a memory would have the text of another active one.
    """
    total = await tx.scalar(_entries(action), caller.parameters)
    if not total:
        raise NotFound("There is nothing to undo: it was undone already, or it is too long ago.")
    names = caller.parameters["caller_namespaces"]
    try:
        result = await tx.execute(_REVERT, {"action": action, "user_id": caller.user_id, "namespaces": names})
    except exc.IntegrityError as error:
        raise changes.duplicate_conflict(error) from error
    rows = result.all()
    by_access: defaultdict[AccessType, list[UUID]] = defaultdict(list)
    for row in rows:
        access = AccessType.UPDATE if row.state_now == row.state else transitions.ACCESS[State(row.state)]
        by_access[access].append(row.id)
        if row.rewritten:
            await _write_back(tx, caller, action, row.id, labels)
    for access, ids in by_access.items():
        await access_log.record(tx, caller, access, ids, {"operation": "undo"})
    await outbox.add_entries(tx, ItemKind.MEMORY, [row.id for row in rows])
    await tx.execute(delete(UndoEntry).where(UndoEntry.action == action))
    return Undone(len(rows), total - len(rows))


async def prune(tx: Tx) -> None:
    """Forget what can no longer be undone."""
    await tx.execute(delete(UndoEntry).where(UndoEntry.changed_at < func.now() - UNDO_FOR))


def _entries(action: UUID) -> Any:
    """The number of memories that an action changed, as far as the caller may change them and it can be undone."""
    return (
        select(func.count())
        .select_from(UndoEntry)
        .join(Memory, Memory.id == UndoEntry.memory_id)
        .where(
            UndoEntry.action == action,
            UndoEntry.changed_at > func.now() - UNDO_FOR,
            Memory.user_id == bindparam("caller_user_id"),
            is_visible(Memory),
        )
    )


async def _write_back(tx: Tx, caller: Caller, action: UUID, memory_id: UUID, labels: changes.Flagging) -> None:
    """Write the text that an action replaced, as a new revision."""
    before = (
        select(MemoryRevision.old_text, UndoEntry.revision)
        .join(UndoEntry, UndoEntry.memory_id == MemoryRevision.memory_id)
        .where(
            UndoEntry.action == action,
            UndoEntry.memory_id == memory_id,
            MemoryRevision.revision == UndoEntry.revision + 1,
        )
    )
    old_text, revision = (await tx.execute(before)).one()
    change = MemoryUpdate(old_text)
    await changes.update_text(tx, caller, Memory.id == memory_id, change, labels, restored_revision=revision)

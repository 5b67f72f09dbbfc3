"""Undoes a capture: reverts its operations in reverse order, all or none."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update

from openmemory.access.readable import readable_by
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.capture.applying import delete, touched
from openmemory.database.engine import Tx
from openmemory.errors import ConflictError, NotFound
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.intake import Intake
from openmemory.memories.models import Memory
from openmemory.memories.repository import ALL_STATES
from openmemory.memories.schemas import Event, MemoryUpdate
from openmemory.memories.state import State


async def undo(tx: Tx, caller: Caller, operations: Sequence[dict[str, Any]], intake: Intake) -> None:
    """Restores every memory to its earlier state. Each step is recorded in the memory's history.

    Raises:
        NotFound: the caller may not change one of the memories.
        ConflictError: a memory was changed since, or another memory now has the earlier text.
    """
    steps = [each for each in operations if each["event"] != Event.NONE]
    now = await _lock_rows(tx, caller, touched(steps))
    for each in reversed(steps):
        match each["event"]:
            case Event.ADD:
                await _unadd(tx, caller, each, now)
            case Event.SUPERSEDE:
                await _unsupersede(tx, caller, each, now)
            case Event.UPDATE:
                await _unupdate(tx, caller, each, now, intake)
            case Event.DELETE:
                await _undelete(tx, caller, each, now)


async def _lock_rows(tx: Tx, caller: Caller, ids: set[UUID]) -> dict[str, Any]:
    """Locks the memories and returns their current rows by id."""
    query = (
        select(Memory.id, Memory.state, Memory.revision, Memory.superseded_by)
        .where(Memory.id == func.any(list(ids)), readable_by(caller, Memory, states=ALL_STATES))
        .order_by(Memory.id)
        .with_for_update(key_share=True)
    )
    rows = {str(row.id): row for row in await tx.execute(query, caller.parameters)}
    if len(rows) < len(ids):
        raise NotFound(
            "A memory of this capture is gone, or not yours to change any more.",
            code="memory_not_found",
            hint="Change the others one by one.",
        )
    return rows


async def _unadd(tx: Tx, caller: Caller, each: dict[str, Any], now: dict[str, Any]) -> None:
    row = now[each["id"]]
    if row.state is State.DELETED:
        return
    if row.revision != each["revision"]:
        raise _conflict(each["id"])
    await delete(tx, caller, UUID(each["id"]))


async def _unsupersede(tx: Tx, caller: Caller, each: dict[str, Any], now: dict[str, Any]) -> None:
    old, before = now[each["superseded_id"]], each["before"]
    if str(old.superseded_by) != each["id"] or old.state is State.DELETED or old.revision != before["revision"]:
        raise _conflict(each["superseded_id"])
    if each.get("verbatim"):  # the capture itself had made this memory
        await delete(tx, caller, old.id)
        return
    if each["added"]:
        await _unadd(tx, caller, each, now)
    if old.state is State.ARCHIVED:
        await changes.change_state(tx, caller, Memory.id == old.id, State.ACTIVE)
        await access_log.record(tx, caller, AccessType.RESTORE, [old.id])
    until, by = before["valid_until"], before["superseded_by"]
    values = {
        "valid_until": None if until is None else datetime.fromisoformat(until),
        "superseded_by": None if by is None else UUID(by),
    }
    await tx.execute(update(Memory).where(Memory.id == old.id).values(values))


async def _unupdate(tx: Tx, caller: Caller, each: dict[str, Any], now: dict[str, Any], intake: Intake) -> None:
    row, before = now[each["id"]], each["before"]
    if row.revision != each["revision"] or row.state is State.DELETED:
        raise _conflict(each["id"])
    change = MemoryUpdate(before["content"], before["metadata"], tuple(before["categories"]))
    await changes.update_text(
        tx, caller, Memory.id == row.id, change, intake.labels, restored_revision=row.revision - 1
    )
    await access_log.record(tx, caller, AccessType.UPDATE, [row.id])


async def _undelete(tx: Tx, caller: Caller, each: dict[str, Any], now: dict[str, Any]) -> None:
    row = now[each["id"]]
    if row.revision != each["revision"]:
        raise _conflict(each["id"])
    if row.state is State.DELETED:
        await changes.change_state(tx, caller, Memory.id == row.id, State.ACTIVE)
        await access_log.record(tx, caller, AccessType.RESTORE, [row.id])


def _conflict(id_: str) -> ConflictError:
    return ConflictError(
        f"The memory {id_} was changed since; nothing was undone.",
        code="changed_since",
        hint="Change the memories one by one.",
    )

"""Restores what a caller deleted last."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import and_, func, select
from sqlalchemy.orm import aliased

from openmemory.access.apps import refuse_if_paused
from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.database.engine import Tx
from openmemory.errors import NotFound
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.lifecycle.transitions import movable
from openmemory.memories.models import Memory, MemoryStatusHistory
from openmemory.memories.state import State


async def restore_last(tx: Tx, caller: Caller) -> list[UUID]:
    """Make active again what the caller's last deletion took away, and return the ids. A memory that was restored since
    stays as it is, so a further call restores what the deletion before took away.

    Raises:
        NotFound: there is nothing that this caller deleted.
        ConflictError: another active memory has one of the texts.
    """
    await refuse_if_paused(tx, caller, "restore memories")
    deletion = aliased(MemoryStatusHistory)
    mine = and_(
        deletion.changed_by == caller.user_id,
        deletion.app_id.is_not_distinct_from(None if caller.owner else caller.app_id),
        deletion.new_state == State.DELETED,
        Memory.state == State.DELETED,
        Memory.deleted_at == deletion.changed_at,
        movable(caller, State.ACTIVE),
    )
    by_caller = select(Memory.id).join(deletion, deletion.memory_id == Memory.id).where(mine)
    last = await tx.scalar(by_caller.with_only_columns(func.max(deletion.changed_at)), caller.parameters)
    # One call is one transaction, and so has one time.
    ids = list(await tx.scalars(by_caller.where(deletion.changed_at == last), caller.parameters))
    if not ids:
        raise NotFound("There is nothing to restore that you deleted", code="nothing_deleted")
    state_changes = await changes.change_state(tx, caller, Memory.id == func.any(ids), State.ACTIVE)
    restored_ids = [id_ for id_, _ in state_changes]
    await access_log.record(tx, caller, AccessType.RESTORE, restored_ids)
    return restored_ids

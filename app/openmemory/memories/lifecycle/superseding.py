"""One memory takes the place of another that was true before."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from sqlalchemy import func, update

from openmemory.audit import access_log
from openmemory.audit.access_log import Access
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.models import Memory, State


async def supersede(tx: Tx, caller: Caller, old: UUID, new: UUID, *, since: datetime | None = None) -> None:
    """Say that `old` holds until `since` (None: now), and that `new` follows it.

    What is over is archived: no search, no list of what holds and no index has it, its text may be said again, its user
    finds it in the archive, and its history tells what became of it. What holds until a time to come stays until then.
    The caller of this has locked both rows, and knows that they may be changed.
    """
    until = func.now() if since is None else since
    await tx.execute(update(Memory).where(Memory.id == old).values(valid_until=until, superseded_by=new))
    if since is None or since <= datetime.now(UTC):
        await changes.change_state(tx, caller, Memory.id == old, State.ARCHIVED)
    await access_log.record(tx, caller, Access.ARCHIVE, [old], {"superseded_by": str(new)})

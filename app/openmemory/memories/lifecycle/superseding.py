"""Replaces a memory that is no longer true with a newer one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import func, select, update

from openmemory.audit import access_log
from openmemory.audit.access_log import AccessType
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.models import Memory, MemoryRevision
from openmemory.memories.state import State

LATE = timedelta(minutes=1)
"""The maximum transmission delay. A text with an older date describes the past."""

WRITTEN_AT = (
    select(func.max(MemoryRevision.changed_at))
    .where(MemoryRevision.memory_id == Memory.id, MemoryRevision.old_text.is_distinct_from(MemoryRevision.new_text))
    .correlate(Memory)
    .scalar_subquery()
)
"""The time when a memory got its present text. Changes of metadata or of the state do not count."""


def is_later(written_at: datetime, created_at: datetime | None) -> bool:
    """Returns True if the text of a memory was written after a text with this time. None: that text is written now."""
    return created_at is not None and written_at > created_at + LATE


async def supersede(tx: Tx, caller: Caller, old: UUID, new: UUID, *, since: datetime | None = None) -> None:
    """Record that `old` is valid until `since` (None: now), and that `new` replaces it.

    A memory that is no longer valid is archived. Searches, lists of valid memories and the index no longer contain it,
    its text may be stored again, the user finds it in the archive, and its history shows what happened. A memory that
    stays valid until a future time is kept until then. The calling function must have locked both rows and checked that
    they may be changed.
    """
    until = func.now() if since is None else since
    await tx.execute(update(Memory).where(Memory.id == old).values(valid_until=until, superseded_by=new))
    if since is None or since <= datetime.now(UTC):
        await changes.change_state(tx, caller, Memory.id == old, State.ARCHIVED)
    await access_log.record(tx, caller, AccessType.ARCHIVE, [old], {"superseded_by": str(new)})

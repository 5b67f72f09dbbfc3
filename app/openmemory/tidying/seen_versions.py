"""The memories that a user decided about, as they were shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from uuid import UUID

from sqlalchemy import func, select

from openmemory.access.readable import readable_by
from openmemory.database.engine import Tx
from openmemory.errors import ConflictError
from openmemory.identity.caller import Caller
from openmemory.memories import repository
from openmemory.memories.models import Memory
from openmemory.tidying.schemas import SeenVersion


async def locked(tx: Tx, caller: Caller, versions: Sequence[SeenVersion]) -> dict[UUID, Any]:
    """Lock these active memories and return their rows by id.

    Raises:
        NotFound: one of them is not active any more, or is not the caller's.
        ConflictError: the text of one of them was changed since.
    """
    seen: dict[UUID, int | None] = dict(versions)
    query = (
        select(Memory.id, Memory.revision, Memory.content, Memory.namespace)
        .where(Memory.id == func.any(list(seen)), readable_by(caller, Memory))
        .order_by(Memory.id)
        .with_for_update(of=Memory, key_share=True)
    )
    rows = {row.id: row for row in await tx.execute(query, caller.parameters)}
    if len(rows) < len(seen):
        raise repository.no_memory()
    if any(seen[row.id] not in (None, row.revision) for row in rows.values()):
        raise ConflictError(
            "A memory was changed since this was shown.", code="changed_since", hint="Load the page again."
        )
    return rows

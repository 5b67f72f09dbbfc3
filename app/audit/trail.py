"""Writing the log of accesses: in the same transaction as the access itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import text

from app.access.caller import Caller
from app.database import Tx


class Access(StrEnum):
    """Why a memory was accessed. The values are stored; those of the OpenMemory contract are kept."""

    SEARCH = "search"
    LIST = "list"
    GET = "get"
    EXPORT = "export"
    UPDATE = "update"
    PAUSE = "pause"
    ARCHIVE = "archive"
    DELETE = "delete"
    DELETE_ALL = "delete_all"
    RESTORE = "restore"


_RECORD = text(
    """
    INSERT INTO memory_access_logs (memory_id, app_id, access_type, metadata)
    SELECT accessed.id, :app_id, :access_type, CAST(:metadata AS jsonb)
    FROM unnest(CAST(:ids AS uuid[])) AS accessed(id)
    WHERE EXISTS (SELECT FROM memories AS m WHERE m.id = accessed.id FOR KEY SHARE)
    ORDER BY accessed.id
    """
)
"""One that was erased since it was read has no log any more. In order of id, as all who lock several memories do."""


async def record(
    tx: Tx, caller: Caller, access: Access, ids: Sequence[UUID], metadata: dict[str, Any] | None = None
) -> None:
    """Log one access to each of the memories, in one statement."""
    if ids:
        await tx.execute(
            _RECORD,
            {
                "app_id": caller.app_id,
                "access_type": access.value,
                "ids": list(ids),
                "metadata": orjson.dumps(metadata or {}).decode(),
            },
        )

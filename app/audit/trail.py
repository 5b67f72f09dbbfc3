"""Writing the log of accesses: in the same transaction as the access itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import ARRAY, String, Uuid, bindparam, cast, column, func, insert, literal_column, select, table, text
from sqlalchemy.dialects.postgresql import JSONB

from app.access import journal
from app.access.caller import Caller
from app.access.journal import Event
from app.audit.models import MemoryAccessLog
from app.database import Tx
from app.prepared import Prepared


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


_COLUMNS = ["memory_id", "app_id", "access_type", "metadata"]


def _statement() -> Any:
    """One access to each of the memories, and one event of the audit log about all of them."""
    asked = select(
        func.unnest(bindparam("ids", type_=ARRAY(Uuid))).label("id"),
        func.unnest(bindparam("metadata", type_=ARRAY(String))).label("metadata"),
    ).cte("asked")
    memory = table("memories", column("id", Uuid))
    # One that was erased since it was read has no log any more. In order of id, as all who lock several memories do.
    there = select(memory.c.id).where(memory.c.id == asked.c.id).with_for_update(read=True, key_share=True)
    logged = (
        insert(MemoryAccessLog)
        .from_select(
            _COLUMNS,
            select(
                asked.c.id,
                bindparam("app_id", type_=Uuid),
                bindparam("access_type", type_=String),
                cast(asked.c.metadata, JSONB),
            )
            .where(there.correlate(asked).exists())
            .order_by(asked.c.id),
        )
        .cte("logged")
    )
    return Prepared(select(literal_column("1")).add_cte(logged, journal.inserted(asked)))


_RECORD = _statement()


async def record(
    tx: Tx,
    caller: Caller,
    access: Access,
    ids: Sequence[UUID],
    metadata: dict[str, Any] | None = None,
    *,
    hashes: Sequence[str] | None = None,
) -> None:
    """Log one access to each of the memories, and the whole in the audit log, in one statement.

    `metadata` is noted of each access, and the memory's own one of `hashes`, if they are given.
    """
    shared = metadata or {}
    if hashes is None:
        each = [orjson.dumps(shared).decode()] * len(ids)
    else:
        each = [orjson.dumps(shared | {"hash": hash_}).decode() for hash_ in hashes]
    await _RECORD.rows(
        tx,
        {
            "ids": list(ids),
            "app_id": caller.app_id,
            "access_type": access.value,
            "metadata": each,
            **journal.parameters(caller, Event(f"memory.{access.value}"), detail=metadata),
        },
    )


async def log_chosen(
    tx: Tx, caller: Caller, access: Access, chosen: str, metadata: dict[str, Any] | None = None
) -> None:
    """Log one access to each of the memories whose `id`s a query of ours chooses; the audit log is the caller's."""
    await tx.execute(
        text(
            f"""
            INSERT INTO memory_access_logs (memory_id, app_id, access_type, metadata)
            SELECT there.id, :app_id, :access_type, CAST(:metadata AS jsonb)
            FROM (
                SELECT m.id FROM memories AS m JOIN ({chosen}) AS chosen ON chosen.id = m.id
                ORDER BY m.id FOR KEY SHARE OF m
            ) AS there
            """  # noqa: S608 - no value is put in
        ),
        {"app_id": caller.app_id, "access_type": access.value, "metadata": orjson.dumps(metadata or {}).decode()},
    )

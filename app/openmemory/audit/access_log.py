"""Writes the access log, in the same transaction as the access itself."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any
from uuid import UUID

import orjson
from sqlalchemy import (
    ARRAY,
    CTE,
    Boolean,
    String,
    Text,
    Uuid,
    bindparam,
    cast,
    column,
    func,
    insert,
    literal_column,
    select,
    table,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

from openmemory.audit import audit_log
from openmemory.audit.models import MemoryAccessLog
from openmemory.audit.schemas import AuditAction
from openmemory.database.compiled import CompiledStatement
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller


class AccessType(StrEnum):
    """The reason for an access to a memory. The values are stored; those of the OpenMemory contract are kept."""

    SEARCH = "search"
    LIST = "list"
    GET = "get"
    EXPORT = "export"
    UPDATE = "update"
    PAUSE = "pause"
    ARCHIVE = "archive"
    EXPIRE = "expire"
    DELETE = "delete"
    DELETE_ALL = "delete_all"
    RESTORE = "restore"


READS = {AccessType.SEARCH, AccessType.LIST, AccessType.GET}

_COLUMNS = ["memory_id", "app_id", "app_name", "access_type", "metadata", "namespaces"]


def parameters(caller: Caller, access: AccessType) -> dict[str, Any]:
    """The parameters that the statements of this module bind. An app that does not exist is logged by name only.

    What the user themself reads, or sees in a preview, is no access of an app; it is in the audit log only.
    """
    name = caller.app if caller.known_app is None else None
    by_app = not ((caller.owner or caller.preview) and access in READS)
    return {"log_app_id": caller.known_app, "log_app_name": name, "log_access_type": access.value, "log_it": by_app}


def inserted(rows: CTE, metadata: Any, namespaces: Any = None) -> CTE:
    """A part of a reading statement that logs one access to each of the `id`s of `rows`, with its metadata.
    `namespaces`: those that a query in the metadata was limited to.

    Binds `parameters`.
    """
    memory = table("memories", column("id", Uuid))
    # A memory erased since it was read has no log any more. Ordered by id, as for every lock on several memories.
    there = select(memory.c.id).where(memory.c.id == rows.c.id).with_for_update(read=True, key_share=True)
    accesses = select(
        rows.c.id, bindparam("log_app_id", type_=Uuid), bindparam("log_app_name", type_=Text),
        bindparam("log_access_type", type_=String), metadata,
        literal_column("NULL::text[]") if namespaces is None else namespaces,
    )  # fmt: skip
    condition = bindparam("log_it", type_=Boolean)
    accesses = accesses.where(condition, there.correlate(rows).exists()).order_by(rows.c.id)
    return insert(MemoryAccessLog).from_select(_COLUMNS, accesses).cte("logged")


def _statement() -> CompiledStatement:
    """Logs one access to each of the memories, and one event in the audit log about all of them."""
    ids = select(func.unnest(bindparam("ids", type_=ARRAY(Uuid))).label("id")).cte("asked")
    logs = inserted(ids, cast(bindparam("metadata", type_=String), JSONB)), audit_log.inserted(ids)
    return CompiledStatement(select(literal_column("1")).add_cte(*logs))


_RECORD = _statement()


async def record(
    tx: Tx,
    caller: Caller,
    access: AccessType,
    ids: Sequence[UUID],
    metadata: dict[str, Any] | None = None,
) -> None:
    """Log one access to each of the memories, with the metadata, and one audit event, in a single statement."""
    await _RECORD.rows(
        tx,
        {
            "ids": list(ids),
            "metadata": orjson.dumps(metadata or {}).decode(),
            **parameters(caller, access),
            **audit_log.parameters(caller, AuditAction(f"memory.{access.value}"), detail=metadata),
        },
    )


async def log_chosen(
    tx: Tx, caller: Caller, access: AccessType, query: str, metadata: dict[str, Any] | None = None
) -> None:
    """Log one access to each memory whose `id` the `query` returns. The caller must write the audit log."""
    await tx.execute(
        text(
            f"""
            INSERT INTO memory_access_logs (memory_id, app_id, app_name, access_type, metadata)
            SELECT there.id, :log_app_id, :log_app_name, :log_access_type, CAST(:metadata AS jsonb)
            FROM (
                SELECT m.id FROM memories AS m JOIN ({query}) AS chosen ON chosen.id = m.id
                ORDER BY m.id FOR KEY SHARE OF m
            ) AS there
            """  # noqa: S608 - all values are parameters
        ),
        {**parameters(caller, access), "metadata": orjson.dumps(metadata or {}).decode()},
    )

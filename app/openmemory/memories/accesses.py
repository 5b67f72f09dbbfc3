"""Reads the access log of one memory."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

from sqlalchemy import and_, case, func, literal, literal_column, or_, select

from openmemory.access.models import App
from openmemory.access.readable import was_visible
from openmemory.audit.access_log import READS
from openmemory.audit.models import MemoryAccessLog
from openmemory.audit.schemas import AccessLogEntry, AccessLogPage
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller

REPEATED = timedelta(hours=1)
"""Reads of one kind by one app are shown as one if none is this long after the one before."""


async def page(tx: Tx, caller: Caller, memory_id: UUID, *, page: int, page_size: int, fold: bool) -> AccessLogPage:
    """Returns a page of one memory's accesses: of assistants first, newest first. The caller must own the memory; this
    function does not check it. `fold`: reads of one kind by one app, each within an hour of the next, are one entry.

    If a query searched beyond the namespaces of the credential, only its existence is shown: its score would allow
    guesses at its words. Imported accesses are treated the same, because an archive may contain anything.
    """
    of_memory = MemoryAccessLog.memory_id == memory_id
    no_query = and_(~MemoryAccessLog.metadata_.has_key("query"), MemoryAccessLog.imported_at.is_(None))
    query_visible = or_(no_query, was_visible(MemoryAccessLog))
    app = func.coalesce(App.name, MemoryAccessLog.app_name, "")
    alike: dict[str, Any] = {"partition_by": (app, MemoryAccessLog.access_type)}
    in_order = (MemoryAccessLog.accessed_at, MemoryAccessLog.id)
    reads = MemoryAccessLog.access_type.in_(READS)
    since = MemoryAccessLog.accessed_at - func.lag(MemoryAccessLog.accessed_at).over(**alike, order_by=in_order)
    accesses = (
        select(
            MemoryAccessLog.id,
            MemoryAccessLog.memory_id,
            MemoryAccessLog.app_id,
            MemoryAccessLog.accessed_at,
            MemoryAccessLog.access_type,
            case((query_visible, MemoryAccessLog.metadata_), else_=literal_column("'{}'::jsonb")).label("metadata_"),
            app.label("app_name"),
            case((and_(literal(fold), reads, since <= REPEATED), 0), else_=1).label("begins"),
        )
        .outerjoin(App, App.id == MemoryAccessLog.app_id)
        .where(of_memory)
        .subquery()
    )
    by_kind = (accesses.c.app_name, accesses.c.access_type)
    runs = select(
        accesses,
        func.sum(accesses.c.begins)
        .over(partition_by=by_kind, order_by=(accesses.c.accessed_at, accesses.c.id))
        .label("fold"),
    ).subquery()
    together: dict[str, Any] = {"partition_by": (runs.c.app_name, runs.c.access_type, runs.c.fold)}
    newest = (runs.c.accessed_at.desc(), runs.c.id.desc())
    entries = select(
        runs,
        func.count().over(**together).label("count"),
        func.min(runs.c.accessed_at).over(**together).label("first_accessed_at"),
        func.row_number().over(**together, order_by=newest).label("place"),
    ).subquery()
    rows = await tx.execute(
        select(entries)
        .where(entries.c.place == 1)
        .order_by(entries.c.app_name == caller.app, entries.c.accessed_at.desc(), entries.c.id.desc())
        .limit(page_size)
        .offset((page - 1) * page_size),
        caller.parameters,
    )
    logs = [AccessLogEntry.model_validate(row) for row in rows]
    total = await tx.scalar(select(func.sum(accesses.c.begins)), caller.parameters)
    return AccessLogPage(total=total or 0, page=page, page_size=page_size, logs=logs)

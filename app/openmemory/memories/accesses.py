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
    """Returns a page of one memory's accesses: of assistants first, newest first. The caller must already be known to
    own the memory. `fold`: reads of one kind by one app, each within an hour of the next, are one entry.

    If a query searched beyond the namespaces of the credential, only its existence is shown: its score would allow
    guesses at its words. Imported accesses are treated the same, because an archive may contain anything.
    """
    of_memory = MemoryAccessLog.memory_id == memory_id
    no_query = and_(~MemoryAccessLog.metadata_.has_key("query"), MemoryAccessLog.imported_at.is_(None))
    query_shown = or_(no_query, was_visible(MemoryAccessLog))
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
            case((query_shown, MemoryAccessLog.metadata_), else_=literal_column("'{}'::jsonb")).label("metadata_"),
            app.label("app_name"),
            case((and_(literal(fold), reads, since <= REPEATED), 0), else_=1).label("begins"),
        )
        .outerjoin(App, App.id == MemoryAccessLog.app_id)
        .where(of_memory)
        .subquery()
    )
    by_kind = (accesses.c.app_name, accesses.c.access_type)
    numbered = select(
        accesses,
        func.sum(accesses.c.begins)
        .over(partition_by=by_kind, order_by=(accesses.c.accessed_at, accesses.c.id))
        .label("fold"),
    ).subquery()
    together: dict[str, Any] = {"partition_by": (numbered.c.app_name, numbered.c.access_type, numbered.c.fold)}
    newest = (numbered.c.accessed_at.desc(), numbered.c.id.desc())
    folded = select(
        numbered,
        func.count().over(**together).label("count"),
        func.min(numbered.c.accessed_at).over(**together).label("first_accessed_at"),
        func.row_number().over(**together, order_by=newest).label("place"),
    ).subquery()
    rows = await tx.execute(
        select(folded)
        .where(folded.c.place == 1)
        .order_by(folded.c.app_name == caller.app, folded.c.accessed_at.desc(), folded.c.id.desc())
        .limit(page_size)
        .offset((page - 1) * page_size),
        caller.parameters,
    )
    logs = [AccessLogEntry.model_validate(row) for row in rows]
    total = await tx.scalar(select(func.sum(accesses.c.begins)), caller.parameters)
    return AccessLogPage(total=total or 0, page=page, page_size=page_size, logs=logs)

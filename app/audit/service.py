"""Reading the log of accesses."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import func, select

from app.access.models import App
from app.audit.models import MemoryAccessLog
from app.audit.schemas import AccessLogEntry, AccessLogPage
from app.database import Tx


async def page(tx: Tx, memory_id: UUID, page: int, page_size: int) -> AccessLogPage:
    """A page of one memory's accesses, newest first. The caller has been found to own the memory."""
    of_memory = MemoryAccessLog.memory_id == memory_id
    rows = await tx.execute(
        select(
            MemoryAccessLog.id,
            MemoryAccessLog.memory_id,
            MemoryAccessLog.app_id,
            MemoryAccessLog.accessed_at,
            MemoryAccessLog.access_type,
            MemoryAccessLog.metadata_.label("metadata_"),
            App.name.label("app_name"),
        )
        .join(App, App.id == MemoryAccessLog.app_id)
        .where(of_memory)
        .order_by(MemoryAccessLog.accessed_at.desc(), MemoryAccessLog.id.desc())
        .limit(page_size)
        .offset((page - 1) * page_size)
    )
    logs = [AccessLogEntry.model_validate(row) for row in rows]
    total = await tx.scalar(select(func.count()).select_from(MemoryAccessLog).where(of_memory))
    return AccessLogPage(total=total or 0, page=page, page_size=page_size, logs=logs)

"""The tables of two logs. The audit log says who did what; the access log says who read which memory."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, Text, Uuid, func, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base


class AuditEvent(Base):
    """One action that was done or denied. It contains no memory text and no query, so it may outlive both.

    Triggers keep it append-only: rows cannot be changed, and rows younger than 30 days cannot be removed. There are no
    foreign keys: a recorded event stays true, whatever becomes of its objects.
    """

    __tablename__ = "audit_events"
    __table_args__ = (
        Index("ix_audit_events_user_id", "user_id", "id"),
        Index("ix_audit_events_event", "event", "id"),
        Index("ix_audit_events_refused", "id", postgresql_where=text("result <> 'ok'")),
    )

    id: Mapped[int] = mapped_column(BigInteger, Identity(always=True), primary_key=True)
    at: Mapped[datetime] = mapped_column(server_default=func.clock_timestamp())
    event: Mapped[str]
    result: Mapped[str] = mapped_column(server_default=text("'ok'"))
    principal: Mapped[str]
    principal_name: Mapped[str]
    door: Mapped[str]
    address: Mapped[str | None]
    request: Mapped[str | None]
    user_id: Mapped[UUID | None]
    app_id: Mapped[UUID | None]
    objects: Mapped[list[UUID] | None] = mapped_column(ARRAY(Uuid))
    count: Mapped[int] = mapped_column(server_default=text("0"))
    detail: Mapped[dict[str, Any] | None] = mapped_column(JSONB)


class MemoryAccessLog(Base):
    """One access of one app to one memory. Erasing the memory erases its log, including the queries in it."""

    __tablename__ = "memory_access_logs"
    __table_args__ = (
        Index("idx_access_memory_time", "memory_id", "accessed_at"),
        Index("idx_access_app_memory", "app_id", "memory_id", "accessed_at"),
        # Rows are inserted in the order of their time, so a few pages tell where the old ones are.
        Index("idx_access_time", "accessed_at", postgresql_using="brin", postgresql_where=text("imported_at IS NULL")),
        Index(
            "idx_access_imported",
            "imported_at",
            postgresql_using="brin",
            postgresql_where=text("imported_at IS NOT NULL"),
        ),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    memory_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"))
    app_id: Mapped[UUID | None] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"))
    app_name: Mapped[str | None]
    """The app name that was used by a caller who may not create such an app; null: the app exists."""
    accessed_at: Mapped[datetime] = mapped_column(server_default=NOW)
    imported_at: Mapped[datetime | None]
    """When the row was imported from an archive; retention starts then. Null for accesses that were logged here."""
    access_type: Mapped[str]
    namespaces: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    """The namespaces that the query in the metadata was limited to; null: no limit, unknown, or no query."""
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))

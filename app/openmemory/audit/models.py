"""Table: who read what, when and how."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ForeignKey, Index, Text, text
from sqlalchemy.dialects.postgresql import ARRAY, JSONB
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.access.models import NEW_ID, NOW
from openmemory.database.engine import Base


class MemoryAccessLog(Base):
    """One access of one app to one memory. Erasing the memory erases its log, with the texts of the queries in it."""

    __tablename__ = "memory_access_logs"
    __table_args__ = (
        Index("idx_access_memory_time", "memory_id", "accessed_at"),
        Index("idx_access_app_memory", "app_id", "memory_id", "accessed_at"),
        # Rows come in the order of their time: a few pages tell where the old ones are.
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
    """The name under which somebody asked who may not make an app of that name; null: there is an app."""
    accessed_at: Mapped[datetime] = mapped_column(server_default=NOW)
    imported_at: Mapped[datetime | None]
    """When it came in from an archive, from when on it is kept; null for what was noted here."""
    access_type: Mapped[str]
    namespaces: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    """The namespaces that the query in the metadata looked at; null: all of them, or nobody knows, or there is none."""
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))

"""The table of links between memories."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.access.models import NOW
from openmemory.database.engine import Base


class MemoryLink(Base):
    """A link between two memories of a user: the first is `rel` of the second, such as "fixes". `app_id`: who made
    it."""

    __tablename__ = "memory_links"
    __table_args__ = (CheckConstraint("from_id <> to_id", name="ends"),)

    from_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    rel: Mapped[str] = mapped_column(primary_key=True)
    to_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True, index=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

"""Tables: the keys that encrypt the objects of users, and the objects to be deleted from the store."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import ForeignKey, LargeBinary
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NOW
from openmemory.database.engine import Base


class ObjectKey(Base):
    """The key of a user, encrypted with the key of the service. Erasing the user destroys it."""

    __tablename__ = "object_keys"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    wrapped: Mapped[bytes] = mapped_column(LargeBinary)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ObjectDeletion(Base):
    """An object to be deleted, or one that nothing refers to yet. It outlives its user, so it refers to nobody."""

    __tablename__ = "object_deletions"

    object_key: Mapped[str] = mapped_column(primary_key=True)
    due_at: Mapped[datetime] = mapped_column(server_default=NOW, index=True)

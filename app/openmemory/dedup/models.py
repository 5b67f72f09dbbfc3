"""The tables of memories that are near to later ones."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import REAL, BigInteger, ForeignKey, Identity, Index
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.engine import Base


class NearMemory(Base):
    """A pair of memories of which the newer may replace the older. Derived from both texts, and computed again.

    The hashes are those of the texts that were compared: the pair says nothing about other texts. `said_at`: the time
    when the newer one got its text.
    """

    __tablename__ = "near_memories"
    __table_args__ = (Index("ix_near_memories_user", "user_id", "said_at", "newer", "older"),)

    newer: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    older: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True, index=True)
    user_id: Mapped[UUID]
    newer_hash: Mapped[str]
    older_hash: Mapped[str]
    nearness: Mapped[float | None] = mapped_column(REAL)
    probability: Mapped[float] = mapped_column(REAL)
    said_at: Mapped[datetime]


class PendingComparison(Base):
    """A memory that is to be compared with those near to it. Triggers write it: with a vector of a text, and when a
    memory becomes active again or comes to another namespace. If the memory waits already, it gets a new version."""

    __tablename__ = "pending_comparisons"

    memory_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    version: Mapped[int] = mapped_column(BigInteger, Identity())

"""The table of pairs of memories that the user keeps."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import CheckConstraint, ForeignKey, text
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NOW
from openmemory.database.engine import Base


class KeptPair(Base):
    """Two memories that the user keeps. They are not listed as near duplicates or for replacement again.

    `decision`: `both` hold, or they are about `different` things. `first` is the smaller id. Archives do
    not hold these rows: after an import the pair is listed again.
    """

    __tablename__ = "kept_pairs"
    __table_args__ = (
        CheckConstraint("first < second", name="order"),
        CheckConstraint("decision IN ('both', 'different')", name="decision"),
    )

    first: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    second: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True, index=True)
    decision: Mapped[str] = mapped_column(server_default=text("'both'"))
    kept_at: Mapped[datetime] = mapped_column(server_default=NOW)

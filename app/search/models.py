"""Table: how common each term is in the larger scopes."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, text
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base


class LexicalStatistics(Base):
    """How many active memories of a scope hold a term, as counted by the last refresh.

    A scope is a user's whole memory (`namespace` empty) or one namespace of it. The empty term carries the totals: the
    number of memories and of their words. Only large scopes are counted, and in them only terms that are not rare.
    """

    __tablename__ = "lexical_statistics"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    namespace: Mapped[str] = mapped_column(primary_key=True)
    term: Mapped[str] = mapped_column(primary_key=True)
    documents: Mapped[int]
    words: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))

"""Tables: how common each term is in the larger scopes, and in which language words are made."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Text, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.engine import Base


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


class Lexicon(Base):
    """One row: in which language the words of memories are made, and how far those are that were made otherwise.

    `former` are the forms that words may still have: languages, and `unsplit` for English words as they were before
    their parts counted. `done` is the highest id whose words have been made anew; null: none, or all.
    """

    __tablename__ = "lexicon"
    __table_args__ = (CheckConstraint('"only"', name="one"),)

    only: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    language: Mapped[str]
    former: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))
    done: Mapped[UUID | None]

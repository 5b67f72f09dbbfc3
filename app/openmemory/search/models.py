"""Tables for the term statistics of larger scopes, and for the language of the words."""

from __future__ import annotations

from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Text, text
from sqlalchemy.dialects.postgresql import ARRAY
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.engine import Base


class LexicalStatistics(Base):
    """The number of active memories in a scope that contain a term, as of the last refresh.

    A scope is all memories of a user (`namespace` empty) or one namespace. The empty term contains the totals: the
    number of memories and of their words. Only large scopes are counted, and in them only terms that are not rare.
    """

    __tablename__ = "lexical_statistics"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    namespace: Mapped[str] = mapped_column(primary_key=True)
    term: Mapped[str] = mapped_column(primary_key=True)
    documents: Mapped[int]
    words: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class PassageStatistics(Base):
    """The same for active passages."""

    __tablename__ = "passage_statistics"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    namespace: Mapped[str] = mapped_column(primary_key=True)
    term: Mapped[str] = mapped_column(primary_key=True)
    documents: Mapped[int]
    words: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class Lexicon(Base):
    """A single row with the language of the words, and the progress of the backfill after a change.

    `former` are the languages that words may still have. `kind` is the kind of items that the backfill works on, and
    `done` the highest id of them that it has finished; null: none, or all.
    """

    __tablename__ = "lexicon"
    __table_args__ = (CheckConstraint("id", name="one_row"),)

    id: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    language: Mapped[str]
    former: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))
    kind: Mapped[str] = mapped_column(server_default=text("'memory'"))
    done: Mapped[UUID | None]

"""Tables for the outbox, the vectors that the index is rebuilt from, and the runs of the sync job."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKeyConstraint, Index, String, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base


class ItemKind(StrEnum):
    """The kinds of searchable items. The values are stored."""

    MEMORY = "memory"
    PASSAGE = "passage"

    @property
    def table(self) -> str:
        """The table of the items."""
        return _TABLES[self]

    def tenant(self, user: UUID) -> UUID:
        """The id under which the index keeps a user's items of this kind, apart from those of other kinds.

        A search of one kind therefore costs the same, no matter how many items of other kinds there are.
        """
        return user if self is ItemKind.MEMORY else UUID(int=user.int ^ _APART)


_TABLES = {ItemKind.MEMORY: "memories", ItemKind.PASSAGE: "passages"}
_APART = 1 << 127
"""The bit in which the tenant of a user's passages differs from the user's id."""


class OutboxEntry(Base):
    """An outbox entry: this item's vector is out of date. Not an event: delivery reads the current row.

    `revision` counts how often the entry was written, so that a delivery does not delete an entry that was written
    again meanwhile. An entry is never dropped, regardless of its `attempts`.
    """

    __tablename__ = "index_outbox"
    __table_args__ = (
        Index("ix_index_outbox_due", "kind", "due_at", "written_at"),
        Index("ix_index_outbox_user", "user_id", "kind"),
    )

    kind: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_id: Mapped[UUID | None]
    """The item's owner. None: the item is gone."""
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    due_at: Mapped[datetime] = mapped_column(server_default=NOW)
    """The earliest time of a claim: the end of a lease, or of the pause after a failure."""
    holder: Mapped[UUID | None]
    """The claim that holds, or last held, the lease."""
    last_error: Mapped[str | None]
    written_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Embedding(Base):
    """The vectors of an item's text, so that an index is rebuilt without embedding again.

    `vector`: little-endian float32, one vector after the other. `chunking`: how the text was cut into
    chunks, each with a vector (`chunks.stored_as`).
    """

    __tablename__ = "embeddings"
    __table_args__ = (Index("ix_embeddings_chunking", "model", "chunking"),)

    kind: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    text_hash: Mapped[str]
    vector: Mapped[bytes]
    chunking: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class EmbeddingTokens(Base):
    """The vectors of those tokens of an item's text that count (`embeddings.port.Codes`), one after the other.

    If no token counts, the row exists anyway, or the text would be checked again and again. A trigger removes the row
    when the vectors of another text are stored.
    """

    __tablename__ = "embedding_tokens"
    __table_args__ = (
        ForeignKeyConstraint(
            ["kind", "id", "model"], ["embeddings.kind", "embeddings.id", "embeddings.model"], ondelete="CASCADE"
        ),
    )

    kind: Mapped[str] = mapped_column(primary_key=True)
    id: Mapped[UUID] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(primary_key=True)
    text_hash: Mapped[str]
    tokens: Mapped[bytes]


class SyncRun(Base):
    """One run of the sync job and its results so far; `expected` is the number of items to compare."""

    __tablename__ = "sync_runs"
    __table_args__ = (Index("ix_sync_runs_started_at", "started_at"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    trigger: Mapped[str]
    collection: Mapped[str | None]
    expected: Mapped[int | None]
    started_at: Mapped[datetime] = mapped_column(server_default=NOW)
    finished_at: Mapped[datetime | None]
    statistics: Mapped[dict[str, Any] | None] = mapped_column(JSONB)
    error: Mapped[str | None]


class GenerationState(StrEnum):
    """building: being filled beside the active one; active: used by searches; retired: kept for a rollback."""

    BUILDING = "building"
    ACTIVE = "active"
    RETIRED = "retired"


class IndexGeneration(Base):
    """One collection of the index: the vectors of one model. `embedder`: how to use it, without secrets.

    `epoch` and `watermark`: the position that the collection had reached when it was last confirmed (`index.monitor`).
    """

    __tablename__ = "index_generations"
    __table_args__ = (
        CheckConstraint("state IN ('building', 'active', 'retired')", name="state"),
        CheckConstraint("dimension > 0", name="dimension"),
        Index("uq_index_generations_active", "state", unique=True, postgresql_where=text("state = 'active'")),
    )

    collection: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str]
    dimension: Mapped[int]
    embedder: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"))
    state: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    activated_at: Mapped[datetime | None]
    retired_at: Mapped[datetime | None]
    epoch: Mapped[UUID] = mapped_column(server_default=NEW_ID)
    watermark: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))


class IndexLease(Base):
    """The single row that names the service whose index takes outbox entries (`index.lease`)."""

    __tablename__ = "index_lease"
    __table_args__ = (CheckConstraint("id", name="one_row"),)

    id: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    holder: Mapped[str]
    taken_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Installation(Base):
    """The single row that names the installation of this database (`index.ownership`). Archives do not carry it.

    `collection`: the name that it took because another installation has the default one. `moved_from`: where else its
    collections may say that this database is. `judged_by`: the digest of the weights by which memories were compared.
    """

    __tablename__ = "installation"
    __table_args__ = (CheckConstraint("one", name="one_row"),)

    one: Mapped[bool] = mapped_column(primary_key=True, server_default=text("true"))
    id: Mapped[UUID] = mapped_column(server_default=NEW_ID)
    collection: Mapped[str | None]
    moved_from: Mapped[list[str]] = mapped_column(ARRAY(String), server_default=text("'{}'"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    judged_by: Mapped[str | None]


class IndexBeat(Base):
    """The last beat that a process of this installation wrote into a collection, with its time."""

    __tablename__ = "index_beats"

    writer: Mapped[UUID] = mapped_column(primary_key=True)
    beat: Mapped[int] = mapped_column(BigInteger)
    seen_at: Mapped[datetime] = mapped_column(server_default=NOW)

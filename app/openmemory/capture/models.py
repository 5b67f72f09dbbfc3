"""Tables of captures, with their input and the language model's operations, and of their usage."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ARRAY, BigInteger, CheckConstraint, ForeignKey, Index, Uuid, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base

_NONE = text("'[]'")
_ZERO = text("0")


class Capture(Base):
    """One text or conversation. It is kept until memories are made from it, however often the model fails.

    `due_at`: time of the next attempt; while the capture is being processed, the end of its lease. `behind`: an earlier
    one of its user and namespace was seen to wait; a trigger clears the mark when its turn comes. `operations`: the
    changes made, in order, each with the memory's earlier state. Before facts were extracted, they are the memories
    that hold the text verbatim in the meantime.
    """

    __tablename__ = "captures"
    __table_args__ = (
        CheckConstraint("status IN ('pending', 'working', 'done', 'failed', 'undone')", name="status"),
        Index("idx_capture_user_created", "user_id", "created_at", "id"),
        Index("idx_capture_hash", "app_id", "hash", "created_at"),
        Index(
            "idx_capture_waiting", "user_id", "namespace", "created_at", "id",
            postgresql_where=text("status IN ('pending', 'working')"),
        ),
        Index(
            "idx_capture_due", "due_at", postgresql_where=text("status IN ('pending', 'working') AND NOT behind"),
        ),
        Index("idx_capture_failed", "due_at", postgresql_where=text("status = 'failed'")),
        Index("idx_capture_failed_user", "user_id", "namespace", postgresql_where=text("status = 'failed'")),
        Index("idx_capture_working", "user_id", "namespace", postgresql_where=text("status = 'working'")),
        Index("idx_capture_finished", "finished_at", postgresql_where=text("finished_at IS NOT NULL")),
        Index("idx_capture_memories", "memory_ids", postgresql_using="gin"),
    )  # fmt: skip

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"))
    namespace: Mapped[str]
    status: Mapped[str] = mapped_column(server_default=text("'pending'"))
    input: Mapped[dict[str, Any]] = mapped_column(JSONB)
    options: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"))
    principal: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"))
    hash: Mapped[str]
    attempts: Mapped[int] = mapped_column(server_default=_ZERO)
    bad_answers: Mapped[int] = mapped_column(server_default=_ZERO)
    due_at: Mapped[datetime] = mapped_column(server_default=NOW)
    behind: Mapped[bool] = mapped_column(server_default=text("false"))
    holder: Mapped[UUID | None]
    error: Mapped[str | None]
    operations: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=_NONE)
    refused: Mapped[list[dict[str, Any]]] = mapped_column(JSONB, server_default=_NONE)
    memory_ids: Mapped[list[UUID]] = mapped_column(ARRAY(Uuid), server_default=text("'{}'"))
    model: Mapped[str | None]
    calls: Mapped[int] = mapped_column(server_default=_ZERO)
    prompt_tokens: Mapped[int] = mapped_column(server_default=_ZERO)
    completion_tokens: Mapped[int] = mapped_column(server_default=_ZERO)
    seconds: Mapped[float] = mapped_column(server_default=_ZERO)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
    finished_at: Mapped[datetime | None]


class CaptureUsage(Base):
    """Usage by the captures of one app on one day (UTC), including captures that were removed since.

    `done`, `failed` and `undone`: captures that reached this status on that day. One capture may count in several.
    """

    __tablename__ = "capture_usage"
    __table_args__ = (Index("idx_capture_usage_user_day", "user_id", "day"),)

    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    namespace: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    calls: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    prompt_tokens: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    completion_tokens: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    seconds: Mapped[float] = mapped_column(server_default=_ZERO)
    done: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    failed: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)
    undone: Mapped[int] = mapped_column(BigInteger, server_default=_ZERO)

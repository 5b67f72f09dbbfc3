"""Tables: who there is, and what apps may read."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, Computed, ForeignKey, Index, UniqueConstraint, func, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from app.database import Base

NEW_ID = text("gen_random_uuid()")
NOW = func.now()


class User(Base):
    """Whose memories they are. `user_id` is the name that clients choose.

    `rules_revision` rises with every change of the user's rules.
    """

    __tablename__ = "users"

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    user_id: Mapped[str] = mapped_column(unique=True)
    name: Mapped[str | None]
    email: Mapped[str | None] = mapped_column(unique=True)
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))
    rules_revision: Mapped[int] = mapped_column(BigInteger, server_default=text("0"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


class App(Base):
    """A client that reads and writes for a user. A paused app (`is_active` false) does neither."""

    __tablename__ = "apps"
    __table_args__ = (UniqueConstraint("owner_id", "name"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    owner_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    name: Mapped[str]
    description: Mapped[str | None]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))
    is_active: Mapped[bool] = mapped_column(server_default=text("true"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


class AccessControl(Base):
    """One allow or deny rule. No subject means every app of the user.

    `object_key` is what a memory is matched by: `all`, `memory:<id>`, `app:<id>`, `category:<id>` or
    `namespace:<name>`; one index probe finds every rule that speaks of a memory.
    """

    __tablename__ = "access_controls"
    __table_args__ = (
        CheckConstraint("effect IN ('allow', 'deny')", name="effect"),
        CheckConstraint("subject_type = 'app'", name="subject_type"),
        CheckConstraint(
            "(object_type = 'all' AND object_id IS NULL AND object_name IS NULL)"
            " OR (object_type = 'namespace' AND object_id IS NULL AND object_name IS NOT NULL)"
            " OR (object_type IN ('memory', 'app', 'category') AND object_id IS NOT NULL AND object_name IS NULL)",
            name="object",
        ),
        Index("idx_access_subject", "subject_type", "subject_id"),
        Index("idx_access_object", "object_type", "object_id"),
        Index("idx_access_rule", "user_id", "object_key", "subject_id", "effect", unique=True),
        Index(
            "idx_access_rule_every_app",
            "user_id",
            "object_key",
            "effect",
            unique=True,
            postgresql_where=text("subject_id IS NULL"),
        ),
        Index("idx_access_subject_effect", "subject_id", "effect", "object_key"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    subject_type: Mapped[str] = mapped_column(server_default=text("'app'"))
    subject_id: Mapped[UUID | None] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"))
    object_type: Mapped[str]
    object_id: Mapped[UUID | None]
    object_name: Mapped[str | None]
    object_key: Mapped[str] = mapped_column(
        Computed(
            "CASE WHEN object_type = 'all' THEN 'all'"
            " ELSE object_type || ':' || coalesce(object_name, object_id::text) END",
            persisted=True,
        )
    )
    effect: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

"""Tables: users and apps, credentials, access rules and rate limits."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    ARRAY,
    BigInteger,
    CheckConstraint,
    Computed,
    ForeignKey,
    Index,
    Text,
    UniqueConstraint,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base


class User(Base):
    """The owner of memories. `user_id` is the name that clients choose.

    `rules_revision` is incremented on every change of the user's rules.
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
    """One allow or deny rule. Without a subject it applies to every app of the user.

    `object_key` is matched against a memory: `all`, `memory:<id>`, `app:<id>`, `category:<id>` or `namespace:<name>`.
    One index probe finds every rule that applies to a memory.
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


class ApiKey(Base):
    """A credential. Only the SHA-256 of the key is stored, and the prefix that identifies it in lookups and lists.

    Without a user it is valid for all users; without an app it acts as the user themself; without namespaces, for all.
    """

    __tablename__ = "api_keys"
    __table_args__ = (
        CheckConstraint("scopes <@ ARRAY['read', 'write', 'admin']", name="scopes"),
        CheckConstraint("octet_length(hash) = 32", name="hash"),
        Index("ix_api_keys_user_id", "user_id"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    prefix: Mapped[str] = mapped_column(unique=True)
    hash: Mapped[bytes]
    name: Mapped[str]
    user_id: Mapped[UUID | None] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    app: Mapped[str | None]
    namespaces: Mapped[list[str] | None] = mapped_column(ARRAY(Text))
    scopes: Mapped[list[str]] = mapped_column(ARRAY(Text))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    created_by: Mapped[str]
    expires_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]
    last_used_at: Mapped[datetime | None]


class BrowserSession(Base):
    """A browser that is signed in. `hash`: SHA-256 of the id in its cookie. `credential`: what it signed in with,
    encrypted with that id. `key_id`: if that is a key, with which the session is removed."""

    __tablename__ = "browser_sessions"
    __table_args__ = (CheckConstraint("octet_length(hash) = 32", name="hash"),)

    hash: Mapped[bytes] = mapped_column(primary_key=True)
    key_id: Mapped[UUID | None] = mapped_column(ForeignKey("api_keys.id", ondelete="CASCADE"), index=True)
    credential: Mapped[bytes]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime] = mapped_column(index=True)
    last_seen_at: Mapped[datetime] = mapped_column(server_default=NOW)


class RateLimit(Base):
    """The number of actions in the current and the previous period of time, across all processes.

    Unlogged: a crash of PostgreSQL clears these counts, and nothing else is lost.
    """

    __tablename__ = "rate_limits"
    __table_args__ = ({"prefixes": ["UNLOGGED"]},)

    bucket: Mapped[str] = mapped_column(primary_key=True)
    period: Mapped[int] = mapped_column(BigInteger)
    used: Mapped[int]
    before: Mapped[int]

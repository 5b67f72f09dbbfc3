"""Tables: memories, their text and state history, and their categories."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    CheckConstraint,
    ColumnElement,
    Computed,
    Enum,
    FetchedValue,
    ForeignKey,
    Index,
    Text,
    UniqueConstraint,
    func,
    literal_column,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base
from openmemory.memories.state import State

STATE = Enum(State, name="memory_state", values_callable=lambda states: [state.value for state in states])


LAST_REVISION = 2**31 - 1
"""The highest revision number that the column can store."""

SHORT = 400
"""The maximum size in bytes of a text that an index stores completely."""

BEGINNING = 100
"""The length in characters of the prefix by which longer texts are sorted first."""


LOOKS_LIKE_KEY_VALUES = r"length(content) <= 4096 AND content ~ '^\s*[^\s=|]+\s*=[^|]*(\|\s*[^\s=|]+\s*=[^|]*)*$'"
"""A condition that is true for every text that `key_values.parsed` accepts, and for few others."""


STANDING = "kind IN ('preference', 'rule', 'instruction') OR (kind = 'decision' AND metadata @> '{\"standing\": true}')"
"""A condition for memories that hold whatever the question is. A constant, as in the condition of their index."""


_ACTIVE = text("state = 'active'")
_NO_PENDING_LIST = {"fastupdate": "off"}


_WRITERS = "text_app_id", "metadata_app_id", "text_by_user"


class Memory(Base):
    """One memory. `app_id`: the app that added it.

    `text_app_id` and `metadata_app_id`: the apps that wrote the present text and metadata, if they are others. With
    `text_by_user` the user themself wrote the text, under the name of that app.
    """

    __tablename__ = "memories"
    __table_args__ = (
        CheckConstraint("revision >= 1", name="revision"),
        # Prevents exact duplicates: identical active texts of the same user, namespace and app.
        Index(
            "uq_memories_active_text", "user_id", "namespace", "app_id", "hash", unique=True, postgresql_where=_ACTIVE
        ),
        # Lists are counted and paged with these indexes only. They cover the columns of `readable_by` and the filters.
        Index(
            "idx_memory_user_created", "user_id", "created_at", "id",
            postgresql_include=["state", "app_id", "expires_at", "valid_until", "updated_at", "importance",
                                "archived_at", "deleted_at", "namespace", "kind", *_WRITERS],
        ),
        Index(
            "idx_memory_app_created", "app_id", "created_at", "id",
            postgresql_include=["user_id", "state", "expires_at", "valid_until", "namespace"],
        ),
        Index(
            "idx_memory_thread_created", "user_id", "thread_id", "created_at", "id",
            postgresql_include=["state", "expires_at", "valid_until", "namespace"],
            postgresql_where=text("thread_id IS NOT NULL"),
        ),
        # The texts that fit into an index: for sorting, and for scanning for one or two letters. They are sorted by
        # bytes, which gives the same order in every database and matches the order of their prefixes.
        Index(
            "idx_memory_text", "user_id", "content", "id",
            postgresql_ops={"content": "text_pattern_ops"},
            postgresql_include=["state", "app_id", "created_at", "expires_at", "valid_until", "namespace", "folded",
                                *_WRITERS],
            postgresql_where=text(f"octet_length(content) <= {SHORT}"),
        ),
        Index(
            "idx_memory_long_text", "user_id",
            func.left(text("content"), text(str(BEGINNING))).label("beginning"), "id",
            postgresql_ops={"beginning": "text_pattern_ops"},
            postgresql_where=text(f"octet_length(content) > {SHORT}"),
        ),
        # Memories that may be hidden from a user who reads everything. Their number is subtracted from other counts.
        Index(
            "idx_memory_maybe_hidden", "user_id", "id",
            postgresql_include=["state", "expires_at", "valid_until", "namespace"],
            postgresql_where=text("state <> 'active' OR expires_at IS NOT NULL OR valid_until IS NOT NULL"),
        ),
        # Memories that have not changed for long, for the archiving job.
        Index("idx_memory_idle", "user_id", "updated_at", postgresql_where=_ACTIVE),
        # One hash per scope and lexeme, so that a lookup reads no other user's memories.
        Index(
            "idx_memory_lexical", text("lexical_keys(user_id, namespace, words)"),
            postgresql_using="gin", postgresql_with=_NO_PENDING_LIST, postgresql_where=_ACTIVE,
        ),
        Index(
            "idx_memory_content_trigram", "user_id", "content",
            postgresql_using="gin", postgresql_ops={"content": "gin_trgm_ops"}, postgresql_with=_NO_PENDING_LIST,
            postgresql_where=_ACTIVE,
        ),
        # A separate index with a pending list (fastupdate), so that pausing many memories stays fast.
        Index(
            "idx_memory_inactive_trigram", "user_id", "content",
            postgresql_using="gin", postgresql_ops={"content": "gin_trgm_ops"},
            postgresql_where=text("state IN ('paused', 'archived')"),
        ),
        # Memories that will expire, soonest first, for the archiving job and for the list of upcoming expiries.
        Index(
            "idx_memory_expiring", "user_id", "expires_at", "id",
            postgresql_where=text("state = 'active' AND expires_at IS NOT NULL"),
        ),
        # Memories that are flagged as prompt injection.
        Index(
            "idx_memory_flagged", "user_id", "created_at", "id", postgresql_where=text("labels <> '{}'::text[]"),
        ),
        # Hashes of paths and values, for equality. Most memories have no metadata.
        Index(
            "idx_memory_metadata", "user_id", "metadata",
            postgresql_using="gin", postgresql_ops={"metadata": "jsonb_path_ops"}, postgresql_with=_NO_PENDING_LIST,
            postgresql_where=text("state = 'active' AND metadata <> '{}'::jsonb"),
        ),
        # The state of a namespace, and its values by key.
        Index(
            "idx_memory_project", "user_id", "namespace", "kind", "key",
            postgresql_where=text("state = 'active' AND kind IN ('state', 'keyed')"),
        ),
        # The preferences, rules and standing decisions of a namespace.
        Index(
            "idx_memory_standing", "user_id", "namespace", text("created_at DESC"), "id",
            postgresql_where=text(f"state = 'active' AND ({STANDING})"),
        ),
        # Memories that belong to a commit.
        Index(
            "idx_memory_anchored", "user_id", "namespace", text("(metadata ->> 'commit')"),
            postgresql_where=text("state = 'active' AND metadata ->> 'commit' IS NOT NULL"),
        ),
        # Keys of texts that are key-value facts. Most texts are not: for these, only the first word is checked.
        Index(
            "idx_memory_key_values", "app_id", text("key_value_keys(content)"),
            postgresql_using="gin", postgresql_with=_NO_PENDING_LIST,
            postgresql_where=text(f"state = 'active' AND {LOOKS_LIKE_KEY_VALUES}"),
        ),
    )  # fmt: skip

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"))
    text_app_id: Mapped[UUID | None]
    metadata_app_id: Mapped[UUID | None]
    text_by_user: Mapped[bool] = mapped_column(server_default=text("false"))
    content: Mapped[str]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))
    state: Mapped[State] = mapped_column(STATE, server_default=State.ACTIVE.value)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
    archived_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]
    namespace: Mapped[str] = mapped_column(server_default=text("'default'"))
    thread_id: Mapped[str | None]
    kind: Mapped[str] = mapped_column(server_default=text("'memory'"))
    key: Mapped[str | None]
    importance: Mapped[float | None]
    hash: Mapped[str]
    expires_at: Mapped[datetime | None]
    valid_from: Mapped[datetime | None]
    valid_until: Mapped[datetime | None]
    superseded_by: Mapped[UUID | None] = mapped_column(ForeignKey("memories.id", ondelete="SET NULL"), index=True)
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    # A trigger derives these from `content`: see `openmemory.search.lexicon`.
    words: Mapped[Any] = mapped_column(TSVECTOR, FetchedValue())
    word_count: Mapped[int] = mapped_column(FetchedValue())
    folded: Mapped[str | None] = mapped_column(Computed("lower(content)", persisted=True))
    labels: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))


ACTIVE: ColumnElement[Any] = literal_column("'active'::memory_state")
"""The state of active rows. A constant instead of a parameter, so that partial indexes match with every plan."""

IS_ACTIVE = Memory.state == ACTIVE
"""Selects active memories."""

HAS_METADATA: ColumnElement[bool] = literal_column("memories.metadata <> '{}'::jsonb")
"""Selects memories with metadata. A constant, as in the condition of their partial index."""


class MemoryRevision(Base):
    """One revision of a memory's text. Revision 1 has no old text."""

    __tablename__ = "memory_revisions"
    __table_args__ = (
        UniqueConstraint("memory_id", "revision"),
        # Changes of texts by time. Adding a memory writes only its first revision, and so never this index.
        Index("idx_revision_user_time", "changed_by", "changed_at", postgresql_where=text("revision > 1")),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    memory_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"))
    revision: Mapped[int]
    old_text: Mapped[str | None]
    new_text: Mapped[str]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))
    changed_by: Mapped[UUID]
    app_id: Mapped[UUID | None]
    changed_at: Mapped[datetime] = mapped_column(server_default=NOW)


class MemoryStatusHistory(Base):
    """One change of state. For a new memory `old_state` is null.

    `reason`: `expired` if the memory expired; else null.
    """

    __tablename__ = "memory_status_history"
    __table_args__ = (
        Index("idx_history_memory_state", "memory_id", "new_state"),
        Index("idx_history_user_time", "changed_by", "changed_at"),
    )

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    memory_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"))
    changed_by: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    app_id: Mapped[UUID | None]
    old_state: Mapped[State | None] = mapped_column(STATE)
    new_state: Mapped[State] = mapped_column(STATE)
    changed_at: Mapped[datetime] = mapped_column(server_default=NOW)
    reason: Mapped[str | None]


class UndoEntry(Base):
    """A memory as it was before a change that can be undone, for a short time. `action`: the id of the change.

    `category_id`: the category that the change assigned. `revision`: that of the text.
    """

    __tablename__ = "memory_undo"

    action: Mapped[UUID] = mapped_column(primary_key=True)
    memory_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True, index=True)
    changed_at: Mapped[datetime] = mapped_column(server_default=NOW, index=True)
    state: Mapped[State] = mapped_column(STATE)
    archived_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    valid_until: Mapped[datetime | None]
    superseded_by: Mapped[UUID | None]
    category_id: Mapped[UUID | None]
    revision: Mapped[int]


class Category(Base):
    """A category of memories. All users share the categories by name."""

    __tablename__ = "categories"
    __table_args__ = (Index("idx_categories_described", "name", postgresql_where=text("description IS NOT NULL")),)

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    name: Mapped[str] = mapped_column(unique=True)
    description: Mapped[str | None]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


class MemoryCategory(Base):
    """Assigns a category to a memory. A trigger fills in the user and the app if they are left out.

    `automatic`: the service assigned it, not a client. Rules that allow a category ignore automatic assignments.
    """

    __tablename__ = "memory_categories"
    __table_args__ = (
        Index("idx_memory_category", "user_id", "category_id", "memory_id", postgresql_include=["app_id"]),
    )

    memory_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    category_id: Mapped[UUID] = mapped_column(ForeignKey("categories.id", ondelete="CASCADE"), primary_key=True)
    user_id: Mapped[UUID]
    app_id: Mapped[UUID]
    automatic: Mapped[bool] = mapped_column(server_default=text("false"))


class PendingCategorization(Base):
    """A memory that waits for category assignment. A trigger inserts it when the text has its vector.

    With `due_at` at `infinity` it is never processed, because a client has set the categories.
    """

    __tablename__ = "pending_categorizations"
    __table_args__ = (Index("idx_pending_categorizations_due", "due_at", "memory_id"),)

    memory_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    due_at: Mapped[datetime] = mapped_column(server_default=NOW)
    attempts: Mapped[int] = mapped_column(server_default=text("0"))
    last_error: Mapped[str | None]


class CategoryDescription(Base):
    """A user's description of a category. The service uses it to assign categories to this user's memories only."""

    __tablename__ = "category_descriptions"
    __table_args__ = (Index("idx_category_descriptions_category", "category_id"),)

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    category_id: Mapped[UUID] = mapped_column(ForeignKey("categories.id", ondelete="CASCADE"), primary_key=True)
    description: Mapped[str]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)


class IdempotencyKey(Base):
    """The idempotency key of a client's request, with the fingerprint of the request and its result.

    `answer` holds only texts of that memory, so that they are deleted when it is erased.
    """

    __tablename__ = "idempotency_keys"
    __table_args__ = (
        Index("idx_idempotency_keys_memory_id", "memory_id", postgresql_where=text("memory_id IS NOT NULL")),
        Index("idx_idempotency_keys_capture_id", "capture_id", postgresql_where=text("capture_id IS NOT NULL")),
        Index("idx_idempotency_keys_created", "created_at"),
    )

    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True)
    principal: Mapped[str] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(primary_key=True)
    fingerprint: Mapped[str]
    memory_id: Mapped[UUID | None] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"))
    capture_id: Mapped[UUID | None] = mapped_column(ForeignKey("captures.id", ondelete="CASCADE"))
    answer: Mapped[dict[str, Any]] = mapped_column(JSONB, server_default=text("'{}'"))
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ReclassificationRequest(Base):
    """A user whose memories need category assignment again, except those whose categories a client has set."""

    __tablename__ = "reclassification_requests"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    requested_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ArchivePolicy(Base):
    """A user's rule: matching memories are archived if they have not changed for a number of days. With the action
    `expire` they expire that many days after their creation. Both actions use OpenMemory's column for the days.

    `criteria_id` is the id of the user, an app or a category. A namespace has no id and is named by `criteria_name`.
    """

    __tablename__ = "archive_policies"
    __table_args__ = (
        CheckConstraint("days_to_archive BETWEEN 1 AND 36500", name="days"),
        CheckConstraint("action IN ('archive', 'expire')", name="action"),
        CheckConstraint(
            "(criteria_type = 'user' AND criteria_id = user_id AND criteria_name IS NULL)"
            " OR (criteria_type IN ('app', 'category') AND criteria_id IS NOT NULL AND criteria_name IS NULL)"
            " OR (criteria_type = 'namespace' AND criteria_id IS NULL AND criteria_name IS NOT NULL)",
            name="criteria",
        ),
        Index("idx_policy_criteria", "criteria_type", "criteria_id"),
        Index(
            "uq_archive_policies_criteria", "user_id", "criteria_type", "criteria_id", "action", unique=True,
            postgresql_where=text("criteria_id IS NOT NULL"),
        ),
        Index(
            "uq_archive_policies_namespace", "user_id", "criteria_name", "action", unique=True,
            postgresql_where=text("criteria_name IS NOT NULL"),
        ),
    )  # fmt: skip

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    criteria_type: Mapped[str]
    criteria_id: Mapped[UUID | None]
    criteria_name: Mapped[str | None]
    action: Mapped[str] = mapped_column(server_default=text("'archive'"))
    days_to_archive: Mapped[int]
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)

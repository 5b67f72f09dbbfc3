"""Tables: sources, which are conversations, files and documents, and their passages."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any
from uuid import UUID

from sqlalchemy import (
    BigInteger,
    CheckConstraint,
    Computed,
    FetchedValue,
    ForeignKey,
    Index,
    Text,
    UniqueConstraint,
    literal_column,
    text,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB, TSVECTOR
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base
from openmemory.memories.models import STATE
from openmemory.memories.state import State


class SourceKind(StrEnum):
    """The kinds of sources. The values are stored."""

    CONVERSATION = "conversation"
    FILE = "file"
    """A file of a folder that a client reads again and again."""
    DOCUMENT = "document"
    """A document that was sent, such as a PDF."""


WITH_PATHS: list[Any] = [literal_column(f"'{kind.value}'") for kind in (SourceKind.FILE, SourceKind.DOCUMENT)]
"""SQL: the kinds of sources whose locator is a path."""


class PassageKind(StrEnum):
    """The kinds of passages. The values are stored."""

    TURN = "turn"
    """A message of a conversation."""
    SESSION = "session"
    """The summary of a session, or a part of its text."""
    TEXT = "text"
    """A part of a file of text."""
    CODE = "code"
    """A part of a file of code."""
    DOCUMENT = "document"
    """A part of a document."""


class Source(Base):
    """A conversation, a file or a document of one app.

    `locator`: the thread id of a conversation, the path of a file, or the name of a document.

    Each app has its own sources, so that a thread id or a path in use reveals nothing to another app. A session or a
    file that replaces that of another app takes its row over (`writing.take_over`). `hash` is that of
    the file as the client read it, or of the text of a session; other conversations have none. `object_key`: the
    original of a document, if it is kept.
    """

    __tablename__ = "sources"
    __table_args__ = (
        CheckConstraint("kind IN ('conversation', 'file', 'document')", name="kind"),
        UniqueConstraint("app_id", "namespace", "kind", "locator"),
        Index("idx_source_user_updated", "user_id", "updated_at", "id"),
        Index(
            "idx_source_uncaptured", "updated_at",
            postgresql_where=text("state = 'active' AND kind = 'conversation' AND infer AND length > captured"),
        ),
        Index("idx_source_user_locator", "user_id", "kind", "locator"),
        Index("idx_source_object", "object_key", postgresql_where=text("object_key IS NOT NULL")),
    )  # fmt: skip

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"))
    namespace: Mapped[str] = mapped_column(server_default="default")
    kind: Mapped[str]
    locator: Mapped[str]
    language: Mapped[str | None]
    media_type: Mapped[str | None]
    hash: Mapped[str | None]
    bytes: Mapped[int | None] = mapped_column(BigInteger)
    object_key: Mapped[str | None]
    title: Mapped[str | None]
    summary: Mapped[str | None]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))
    state: Mapped[State] = mapped_column(STATE, server_default=State.ACTIVE.value)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
    closed_at: Mapped[datetime | None]
    deleted_at: Mapped[datetime | None]
    expires_at: Mapped[datetime | None]
    valid_until: Mapped[datetime | None]
    length: Mapped[int] = mapped_column(server_default=text("0"))
    """The position of the last passage, from 1, whether it still exists or not."""
    infer: Mapped[bool] = mapped_column(server_default=text("true"))
    """Facts may be extracted from it."""
    captured: Mapped[int] = mapped_column(server_default=text("0"))
    """The position up to which captures have read it (`capture.windows`)."""


class Passage(Base):
    """A piece of a source, verbatim. It has the source's user, app, namespace, state and times of expiry.

    `symbols`: the names that code defines. `external_id`: the client's own id of a message. `created_at`: when it was
    said; of the messages of a thread, no two have the same time.
    """

    __tablename__ = "passages"
    __table_args__ = (
        CheckConstraint("kind IN ('turn', 'session', 'text', 'code', 'document')", name="kind"),
        UniqueConstraint("source_id", "position"),
        Index(
            "uq_passages_external_id", "source_id", "external_id", unique=True,
            postgresql_where=text("external_id IS NOT NULL"),
        ),
        Index("idx_passage_user_created", "user_id", "created_at", "id"),
        Index("idx_passage_thread_created", "user_id", "thread_id", "created_at", "id"),
        Index(
            "idx_passage_expiring", "expires_at",
            postgresql_where=text("state = 'active' AND expires_at IS NOT NULL"),
        ),
        Index(
            "idx_passage_anchored", "user_id", "namespace", text("(metadata ->> 'commit')"),
            postgresql_where=text("state = 'active' AND metadata ->> 'commit' IS NOT NULL"),
        ),
        Index("idx_passage_symbols", "symbols", postgresql_using="gin", postgresql_where=text("symbols <> '{}'")),
        Index(
            "idx_passage_lexical", text("lexical_keys(user_id, namespace, words)"),
            postgresql_using="gin", postgresql_with={"fastupdate": "off"}, postgresql_where=text("state = 'active'"),
        ),
    )  # fmt: skip

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    source_id: Mapped[UUID] = mapped_column(ForeignKey("sources.id", ondelete="CASCADE"))
    user_id: Mapped[UUID]
    app_id: Mapped[UUID]
    namespace: Mapped[str]
    thread_id: Mapped[str | None]
    kind: Mapped[str]
    position: Mapped[int]
    external_id: Mapped[str | None]
    speaker: Mapped[str | None]
    heading: Mapped[str | None]
    first_line: Mapped[int | None]
    last_line: Mapped[int | None]
    content: Mapped[str]
    hash: Mapped[str] = mapped_column(Computed("md5(passage_text(heading, speaker, content))", persisted=True))
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))
    state: Mapped[State] = mapped_column(STATE, server_default=State.ACTIVE.value)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime | None]
    valid_until: Mapped[datetime | None]
    revision: Mapped[int] = mapped_column(server_default=text("1"))
    words: Mapped[str] = mapped_column(TSVECTOR, FetchedValue())
    word_count: Mapped[int] = mapped_column(FetchedValue())
    labels: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))
    symbols: Mapped[list[str]] = mapped_column(ARRAY(Text), server_default=text("'{}'"))

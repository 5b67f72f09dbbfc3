"""The tables of projects, of links between memories, of anchors, and of what context packs gave."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, UniqueConstraint, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NEW_ID, NOW
from openmemory.database.engine import Base
from openmemory.memories.models import STATE
from openmemory.memories.state import State


class MemoryLink(Base):
    """A link between two memories of a user: the first is `rel` of the second, such as "fixes". `app_id`: who made
    it."""

    __tablename__ = "memory_links"
    __table_args__ = (CheckConstraint("from_id <> to_id", name="ends"),)

    from_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True)
    rel: Mapped[str] = mapped_column(primary_key=True)
    to_id: Mapped[UUID] = mapped_column(ForeignKey("memories.id", ondelete="CASCADE"), primary_key=True, index=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), index=True)
    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"), index=True)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)


class Project(Base):
    """A namespace with a name and a repository, as an app registered it. `root` is its folder, which the service shows
    and never opens.

    `readable_by` needs some of the columns. The state is always active. `projects/registrations.py` decides which one
    of several apps counts.
    """

    __tablename__ = "projects"
    __table_args__ = (UniqueConstraint("user_id", "namespace", "app_id"),)

    id: Mapped[UUID] = mapped_column(primary_key=True, server_default=NEW_ID)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"), index=True)
    namespace: Mapped[str]
    name: Mapped[str]
    root: Mapped[str | None]
    repo: Mapped[str | None]
    head: Mapped[str | None]
    branch: Mapped[str | None]
    metadata_: Mapped[dict[str, Any]] = mapped_column("metadata", JSONB, server_default=text("'{}'"))
    state: Mapped[State] = mapped_column(STATE, server_default=State.ACTIVE.value)
    created_at: Mapped[datetime] = mapped_column(server_default=NOW)
    updated_at: Mapped[datetime] = mapped_column(server_default=NOW)
    expires_at: Mapped[datetime | None]
    valid_until: Mapped[datetime | None]


class Anchor(Base):
    """A commit that memories belong to, compared with the commit of a checkout: `head`.

    `reachable`: it is in the history of the checkout.
    """

    __tablename__ = "anchors"

    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"), primary_key=True)
    namespace: Mapped[str] = mapped_column(primary_key=True)
    head: Mapped[str] = mapped_column(primary_key=True)
    commit: Mapped[str] = mapped_column(primary_key=True)
    reachable: Mapped[bool]
    checked_at: Mapped[datetime] = mapped_column(server_default=NOW)


class ReadUsage(Base):
    """The tokens that an app was given on a day, by project and kind of request. No query is kept."""

    __tablename__ = "read_usage"
    __table_args__ = (Index("idx_read_usage_user", "user_id", "day"),)

    app_id: Mapped[UUID] = mapped_column(ForeignKey("apps.id", ondelete="CASCADE"), primary_key=True)
    day: Mapped[date] = mapped_column(primary_key=True)
    namespace: Mapped[str] = mapped_column(primary_key=True)
    tool: Mapped[str] = mapped_column(primary_key=True)
    user_id: Mapped[UUID] = mapped_column(ForeignKey("users.id", ondelete="CASCADE"))
    calls: Mapped[int] = mapped_column(BigInteger)
    items: Mapped[int] = mapped_column(BigInteger)
    candidates: Mapped[int] = mapped_column(BigInteger)
    used: Mapped[int] = mapped_column(BigInteger)
    saved: Mapped[int] = mapped_column(BigInteger)
    truncated: Mapped[int] = mapped_column(BigInteger)
    dropped: Mapped[int] = mapped_column(BigInteger)

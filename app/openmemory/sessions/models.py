"""Tables: which process holds which MCP session, and the messages on their way to it.

Both are unlogged: what they hold ends with the processes, and a crash of PostgreSQL, which empties them, is told apart
from a delivery. The holders enter their sessions again as soon as they are connected again.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.access.models import NOW
from openmemory.database.engine import Base


class McpSession(Base):
    """An open SSE session. `user_name` and `app_name` are as its address has them; null: the configured default.

    `principal` is who opened it; with `bearer` its id alone admits messages, because its client sends no credential.

    `holder` names the process by the advisory lock that it keeps while it lives.
    """

    __tablename__ = "mcp_sessions"
    __table_args__ = (Index("ix_mcp_sessions_holder", "holder"), {"prefixes": ["UNLOGGED"]})

    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_name: Mapped[str | None]
    app_name: Mapped[str | None]
    principal: Mapped[str] = mapped_column(server_default=text("''"))
    bearer: Mapped[bool] = mapped_column(server_default=text("false"))
    holder: Mapped[int]
    opened_at: Mapped[datetime] = mapped_column(server_default=NOW)


class McpMessage(Base):
    """A message that reached another process than the session's: number `ticket` of those that `sender` passed on."""

    __tablename__ = "mcp_messages"
    __table_args__ = (Index("ix_mcp_messages_session_id", "session_id"), {"prefixes": ["UNLOGGED"]})

    number: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    session_id: Mapped[UUID] = mapped_column(ForeignKey("mcp_sessions.id", ondelete="CASCADE"))
    sender: Mapped[int]
    ticket: Mapped[int] = mapped_column(BigInteger)
    body: Mapped[bytes]
    sent_at: Mapped[datetime] = mapped_column(server_default=NOW)

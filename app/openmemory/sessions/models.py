"""Tables of MCP sessions, with the process that holds each, and of the messages on their way to them.

Both tables are unlogged: their rows end with the processes. A crash of PostgreSQL empties them, and is not mistaken for
a delivery. The holders register their sessions again as soon as they reconnect.
"""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

from sqlalchemy import BigInteger, ForeignKey, Identity, Index, text
from sqlalchemy.orm import Mapped, mapped_column

from openmemory.database.columns import NOW
from openmemory.database.engine import Base


class McpSession(Base):
    """An open SSE session. `user_name` and `app_name` come from its URL; null means the configured default.

    `principal` opened the session. With `bearer`, the session id alone admits messages, because the client sends no
    credential.

    `holder` is the number of the process that has the stream. It renews `seen_at` as long as the session is open.
    """

    __tablename__ = "mcp_sessions"
    __table_args__ = (Index("ix_mcp_sessions_holder", "holder"), {"prefixes": ["UNLOGGED"]})

    id: Mapped[UUID] = mapped_column(primary_key=True)
    user_name: Mapped[str | None]
    app_name: Mapped[str | None]
    principal: Mapped[str] = mapped_column(server_default=text("''"))
    bearer: Mapped[bool] = mapped_column(server_default=text("false"))
    holder: Mapped[int]
    seen_at: Mapped[datetime] = mapped_column(server_default=NOW)


class McpMessage(Base):
    """A message that reached a process other than the session's. `ticket` is its number among those of `sender`."""

    __tablename__ = "mcp_messages"
    __table_args__ = (Index("ix_mcp_messages_session_id", "session_id"), {"prefixes": ["UNLOGGED"]})

    number: Mapped[int] = mapped_column(BigInteger, Identity(), primary_key=True)
    session_id: Mapped[UUID] = mapped_column(ForeignKey("mcp_sessions.id", ondelete="CASCADE"))
    sender: Mapped[int]
    ticket: Mapped[int] = mapped_column(BigInteger)
    body: Mapped[bytes]

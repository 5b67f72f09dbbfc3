"""An MCP session is renewed by the process that has its stream."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_24_sessions"
down_revision = "2026_11_23_unknown_apps"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.alter_column("mcp_sessions", "opened_at", new_column_name="seen_at")
    op.drop_column("mcp_messages", "sent_at")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    sent_at = sa.Column("sent_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False)
    op.add_column("mcp_messages", sent_at)
    op.alter_column("mcp_sessions", "seen_at", new_column_name="opened_at")

"""MCP sessions that several processes know of, and the messages between them."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_21_relay"
down_revision = "2026_11_21_generations"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "mcp_sessions",
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("user_name", sa.String(), nullable=True),
        sa.Column("app_name", sa.String(), nullable=True),
        sa.Column("holder", sa.Integer(), nullable=False),
        sa.Column("opened_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_mcp_sessions"),
        prefixes=["UNLOGGED"],
    )
    op.create_index("ix_mcp_sessions_holder", "mcp_sessions", ["holder"])
    op.create_table(
        "mcp_messages",
        sa.Column("number", sa.BigInteger(), sa.Identity(), nullable=False),
        sa.Column("session_id", sa.Uuid(), nullable=False),
        sa.Column("sender", sa.Integer(), nullable=False),
        sa.Column("ticket", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.LargeBinary(), nullable=False),
        sa.Column("sent_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["session_id"], ["mcp_sessions.id"], name="fk_mcp_messages_session_id_mcp_sessions", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("number", name="pk_mcp_messages"),
        prefixes=["UNLOGGED"],
    )
    op.create_index("ix_mcp_messages_session_id", "mcp_messages", ["session_id"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("mcp_messages")
    op.drop_table("mcp_sessions")

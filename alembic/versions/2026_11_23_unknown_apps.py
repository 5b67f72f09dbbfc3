"""The log of accesses tells of apps that the user does not have: who only reads makes none."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_23_unknown_apps"
down_revision = "2026_11_23_reach"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("memory_access_logs", sa.Column("app_name", sa.String(), nullable=True))
    op.alter_column("memory_access_logs", "app_id", nullable=True)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DELETE FROM memory_access_logs WHERE app_id IS NULL")
    op.alter_column("memory_access_logs", "app_id", nullable=False)
    op.drop_column("memory_access_logs", "app_name")

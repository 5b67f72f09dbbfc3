"""The log of accesses tells which namespaces a query looked at; of older queries it is taken that they looked at all."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_23_reach"
down_revision = "2026_11_23_idempotency"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("memory_access_logs", sa.Column("namespaces", sa.ARRAY(sa.Text()), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("memory_access_logs", "namespaces")

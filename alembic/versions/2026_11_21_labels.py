"""Memories carry labels."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from alembic import op

revision = "2026_11_21_labels"
down_revision = "2026_11_21_rules"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    labels = sa.Column("labels", postgresql.ARRAY(sa.Text()), server_default=sa.text("'{}'"), nullable=False)
    op.add_column("memories", labels)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("memories", "labels")

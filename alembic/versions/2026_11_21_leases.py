"""Index marks know by which claim they are held."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_21_leases"
down_revision = "2026_11_21_relay"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("index_marks", sa.Column("holder", sa.Uuid(), nullable=True))


def downgrade() -> None:
    op.drop_column("index_marks", "holder")

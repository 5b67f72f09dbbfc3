"""The installation knows by which weights its memories were compared, so that others compare them again."""

from __future__ import annotations

from alembic import op

revision = "2026_11_28_judged_by"
down_revision = "2026_11_28_reasons"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute("ALTER TABLE installation ADD COLUMN judged_by varchar")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute("ALTER TABLE installation DROP COLUMN judged_by")

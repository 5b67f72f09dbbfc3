"""Old lines of the access log are found by their time."""

from __future__ import annotations

from alembic import op

revision = "2026_11_21_logs"
down_revision = "2026_11_21_labels"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_index("idx_access_time", "memory_access_logs", ["accessed_at"], postgresql_using="brin")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_access_time", "memory_access_logs")

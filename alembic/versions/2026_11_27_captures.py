"""Captures are found by user, namespace and age, and failed ones by the time of their next attempt."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_captures"
down_revision = "2026_11_25_first"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute(
        "CREATE INDEX idx_capture_waiting ON captures (user_id, namespace, created_at, id)"
        " WHERE status IN ('pending', 'working')"
    )
    op.execute("CREATE INDEX idx_capture_failed ON captures (due_at) WHERE status = 'failed'")
    op.execute("CREATE INDEX idx_capture_failed_user ON captures (user_id, namespace) WHERE status = 'failed'")
    op.execute("DROP INDEX IF EXISTS idx_capture_due")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute("CREATE INDEX idx_capture_due ON captures (due_at, created_at) WHERE status IN ('pending', 'working')")
    for name in ("waiting", "failed", "failed_user"):
        op.execute(f"DROP INDEX IF EXISTS idx_capture_{name}")

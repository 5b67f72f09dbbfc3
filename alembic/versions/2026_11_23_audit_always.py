"""The triggers that keep the audit log append-only fire in sessions that apply another server's changes, too.

The other triggers derive values from what was written; such a session has those values from the other server.
"""

from __future__ import annotations

from alembic import op

revision = "2026_11_23_audit_always"
down_revision = "2026_11_23_watermarks"
branch_labels = None
depends_on = None

TRIGGERS = ("append_only", "append_only_whole")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in TRIGGERS:
        op.execute(f"ALTER TABLE audit_events ENABLE ALWAYS TRIGGER {name}")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for name in TRIGGERS:
        op.execute(f"ALTER TABLE audit_events ENABLE TRIGGER {name}")

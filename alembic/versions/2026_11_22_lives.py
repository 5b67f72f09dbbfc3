"""Policies by which memories expire, what will expire in an index, and why a state changed."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_lives"
down_revision = "2026_11_22_pairs"
branch_labels = None
depends_on = None

CRITERIA = {
    "uq_archive_policies_criteria": (["user_id", "criteria_type", "criteria_id"], "criteria_id IS NOT NULL"),
    "uq_archive_policies_namespace": (["user_id", "criteria_name"], "criteria_name IS NOT NULL"),
}


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "archive_policies", sa.Column("action", sa.String(), server_default=sa.text("'archive'"), nullable=False)
    )
    op.create_check_constraint(
        op.f("ck_archive_policies_action"), "archive_policies", "action IN ('archive', 'expire')"
    )
    _replace_indexes(["action"])
    op.add_column("memory_status_history", sa.Column("reason", sa.String(), nullable=True))
    op.create_index(
        "idx_memory_expiring",
        "memories",
        ["user_id", "expires_at", "id"],
        postgresql_where=sa.text("state = 'active' AND expires_at IS NOT NULL"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_memory_expiring", table_name="memories")
    op.drop_column("memory_status_history", "reason")
    # Without an action they would archive.
    op.execute("DELETE FROM archive_policies WHERE action = 'expire'")
    _replace_indexes([])
    op.drop_constraint(op.f("ck_archive_policies_action"), "archive_policies")
    op.drop_column("archive_policies", "action")


def _replace_indexes(more: list[str]) -> None:
    for name, (columns, where) in CRITERIA.items():
        op.drop_index(name, table_name="archive_policies")
        op.create_index(name, "archive_policies", [*columns, *more], unique=True, postgresql_where=sa.text(where))

"""Rules by which memories are archived."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_policies"
down_revision = "2026_11_22_configs"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "archive_policies",
        sa.Column("id", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False),
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("criteria_type", sa.String(), nullable=False),
        sa.Column("criteria_id", sa.Uuid(), nullable=True),
        sa.Column("criteria_name", sa.String(), nullable=True),
        sa.Column("days_to_archive", sa.Integer(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("days_to_archive BETWEEN 1 AND 36500", name="ck_archive_policies_days"),
        sa.CheckConstraint(
            "(criteria_type = 'user' AND criteria_id = user_id AND criteria_name IS NULL)"
            " OR (criteria_type IN ('app', 'category') AND criteria_id IS NOT NULL AND criteria_name IS NULL)"
            " OR (criteria_type = 'namespace' AND criteria_id IS NULL AND criteria_name IS NOT NULL)",
            name="ck_archive_policies_criteria",
        ),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_archive_policies_user_id_users", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_archive_policies"),
    )
    op.create_index("idx_policy_criteria", "archive_policies", ["criteria_type", "criteria_id"])
    op.create_index(
        "uq_archive_policies_criteria",
        "archive_policies",
        ["user_id", "criteria_type", "criteria_id"],
        unique=True,
        postgresql_where=sa.text("criteria_id IS NOT NULL"),
    )
    op.create_index(
        "uq_archive_policies_namespace",
        "archive_policies",
        ["user_id", "criteria_name"],
        unique=True,
        postgresql_where=sa.text("criteria_name IS NOT NULL"),
    )
    op.create_index(
        "idx_memory_idle", "memories", ["user_id", "updated_at"], postgresql_where=sa.text("state = 'active'")
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_memory_idle", "memories")
    op.drop_table("archive_policies")

"""A user's own descriptions of categories, and whose memories are to be looked at again because of them."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_described"
down_revision = "2026_11_22_lives"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "category_descriptions",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("category_id", sa.Uuid(), nullable=False),
        sa.Column("description", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("updated_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["users.id"], name="fk_category_descriptions_user_id_users", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["category_id"],
            ["categories.id"],
            name="fk_category_descriptions_category_id_categories",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("user_id", "category_id", name="pk_category_descriptions"),
    )
    op.create_index("idx_category_descriptions_category", "category_descriptions", ["category_id"])
    op.create_table(
        "filing_orders",
        sa.Column("user_id", sa.Uuid(), nullable=False),
        sa.Column("ordered_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.ForeignKeyConstraint(["user_id"], ["users.id"], name="fk_filing_orders_user_id_users", ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("user_id", name="pk_filing_orders"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("filing_orders")
    op.drop_table("category_descriptions")

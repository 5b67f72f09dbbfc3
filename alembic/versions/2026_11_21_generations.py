"""Generations of the index: one collection for each model, and how far a run of the sync has come."""

from __future__ import annotations

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from alembic import op

revision = "2026_11_21_generations"
down_revision = "2026_11_21_first"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "index_generations",
        sa.Column("collection", sa.String(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("dimension", sa.Integer(), nullable=False),
        sa.Column("embedder", postgresql.JSONB(astext_type=sa.Text()), server_default=sa.text("'{}'"), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("created_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("activated_at", sa.DateTime(timezone=True), nullable=True),
        sa.Column("retired_at", sa.DateTime(timezone=True), nullable=True),
        sa.CheckConstraint("state IN ('building', 'active', 'retired')", name="ck_index_generations_state"),
        sa.CheckConstraint("dimension > 0", name="ck_index_generations_dimension"),
        sa.PrimaryKeyConstraint("collection", name="pk_index_generations"),
    )
    op.create_index(
        "uq_index_generations_active",
        "index_generations",
        ["state"],
        unique=True,
        postgresql_where=sa.text("state = 'active'"),
    )
    op.add_column("sync_runs", sa.Column("collection", sa.String(), nullable=True))
    op.add_column("sync_runs", sa.Column("expected", sa.Integer(), nullable=True))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_column("sync_runs", "expected")
    op.drop_column("sync_runs", "collection")
    op.drop_table("index_generations")

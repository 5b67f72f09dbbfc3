"""How far each index has followed PostgreSQL, and which service's index may take outbox entries."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_23_watermarks"
down_revision = "2026_11_22_tokens"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    epoch = sa.Column("epoch", sa.Uuid(), server_default=sa.text("gen_random_uuid()"), nullable=False)
    op.add_column("index_generations", epoch)
    op.add_column(
        "index_generations", sa.Column("watermark", sa.BigInteger(), server_default=sa.text("0"), nullable=False)
    )
    op.create_table(
        "index_lease",
        sa.Column("id", sa.Boolean(), server_default=sa.text("true"), nullable=False),
        sa.Column("holder", sa.String(), nullable=False),
        sa.Column("taken_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.CheckConstraint("id", name="ck_index_lease_one_row"),
        sa.PrimaryKeyConstraint("id", name="pk_index_lease"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_table("index_lease")
    op.drop_column("index_generations", "watermark")
    op.drop_column("index_generations", "epoch")

"""Stored vectors tell how their text was cut: long texts have several."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_windows"
down_revision = "2026_11_22_metadata"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("embeddings", sa.Column("cut", sa.String(), server_default=sa.text("''"), nullable=False))
    op.create_index("ix_embeddings_cut", "embeddings", ["model", "cut"])


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    # The service of before takes one vector of a text, and makes anew what is longer.
    op.drop_index("ix_embeddings_cut", table_name="embeddings")
    op.drop_column("embeddings", "cut")

"""Metadata are looked up by an index when a search asks for them."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_metadata"
down_revision = "2026_11_22_folded"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_index(
        "idx_memory_metadata",
        "memories",
        ["user_id", "metadata"],
        postgresql_using="gin",
        postgresql_ops={"metadata": "jsonb_path_ops"},
        postgresql_with={"fastupdate": "off"},
        postgresql_where=sa.text("state = 'active' AND metadata <> '{}'::jsonb"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_memory_metadata", table_name="memories")

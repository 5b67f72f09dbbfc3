"""Texts are kept in lower case too, for looking through, and those of paused and archived memories are indexed by parts."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_folded"
down_revision = "2026_11_22_imported"
branch_labels = None
depends_on = None

INCLUDED = ["state", "app_id", "created_at", "expires_at", "valid_until", "namespace"]


def index_of_texts(included: list[str]) -> None:
    """Create the index by which texts are sorted and looked through."""
    op.create_index(
        "idx_memory_text",
        "memories",
        ["user_id", "content", "id"],
        postgresql_ops={"content": "text_pattern_ops"},
        postgresql_include=included,
        postgresql_where=sa.text("octet_length(content) <= 400"),
    )


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_memory_text", table_name="memories")
    op.add_column("memories", sa.Column("folded", sa.String(), sa.Computed("lower(content)", persisted=True)))
    index_of_texts([*INCLUDED, "folded"])
    op.create_index(
        "idx_memory_kept_trigram",
        "memories",
        ["user_id", "content"],
        postgresql_using="gin",
        postgresql_ops={"content": "gin_trgm_ops"},
        postgresql_where=sa.text("state IN ('paused', 'archived')"),
    )
    op.create_index(
        "idx_memory_aside",
        "memories",
        ["user_id", "id"],
        postgresql_include=["state", "expires_at", "valid_until", "namespace"],
        postgresql_where=sa.text("state <> 'active' OR expires_at IS NOT NULL OR valid_until IS NOT NULL"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_memory_aside", table_name="memories")
    op.drop_index("idx_memory_kept_trigram", table_name="memories")
    op.drop_index("idx_memory_text", table_name="memories")
    op.drop_column("memories", "folded")
    index_of_texts(INCLUDED)

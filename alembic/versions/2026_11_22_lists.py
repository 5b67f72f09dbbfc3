"""Lists and counts are answered by indexes alone, and categories are looked up within their user."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_lists"
down_revision = "2026_11_22_policies"
branch_labels = None
depends_on = None

# Who files a memory need not say whose it is.
FILED_FOR = """
CREATE FUNCTION memory_categories_filed_for() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT user_id INTO NEW.user_id FROM memories WHERE id = NEW.memory_id;
    RETURN NEW;
END
$$
"""

# Pages that vacuum has seen are not looked at by a count: after a fiftieth is new, rather than a fifth.
VACUUMED = ("memories", "memory_categories", "memory_access_logs")


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_index(
        "idx_memory_user_created",
        "memories",
        ["user_id", "created_at", "id"],
        postgresql_include=[
            "state", "app_id", "expires_at", "valid_until", "updated_at", "importance", "archived_at", "deleted_at",
            "namespace", "kind",
        ],
    )  # fmt: skip
    op.create_index(
        "idx_memory_app_created",
        "memories",
        ["app_id", "created_at", "id"],
        postgresql_include=["user_id", "state", "expires_at", "valid_until", "namespace"],
    )
    op.create_index(
        "idx_memory_thread_created",
        "memories",
        ["user_id", "thread_id", "created_at", "id"],
        postgresql_include=["state", "expires_at", "valid_until", "namespace"],
        postgresql_where=sa.text("thread_id IS NOT NULL"),
    )
    op.create_index(
        "idx_memory_text",
        "memories",
        ["user_id", "content", "id"],
        postgresql_ops={"content": "text_pattern_ops"},
        postgresql_include=["state", "app_id", "created_at", "expires_at", "valid_until", "namespace"],
        postgresql_where=sa.text("octet_length(content) <= 400"),
    )
    op.create_index(
        "idx_memory_long_text",
        "memories",
        ["user_id", sa.literal_column('"left"(content, 100)').label("beginning"), "id"],
        postgresql_ops={"beginning": "text_pattern_ops"},
        postgresql_where=sa.text("octet_length(content) > 400"),
    )
    # So that it is known how many of them are short.
    op.execute("CREATE STATISTICS memory_text_length ON (octet_length(content)) FROM memories")
    op.drop_index("idx_memory_user_state", table_name="memories")
    op.drop_index("idx_memory_user_app", table_name="memories")
    op.drop_index("idx_memory_app_state", table_name="memories")

    op.add_column("memory_categories", sa.Column("user_id", sa.Uuid(), nullable=True))
    op.execute(
        "UPDATE memory_categories SET user_id = memories.user_id FROM memories WHERE memories.id = memory_categories.memory_id"
    )
    op.alter_column("memory_categories", "user_id", nullable=False)
    op.execute(FILED_FOR)
    op.execute(
        "CREATE TRIGGER filed_for BEFORE INSERT ON memory_categories"
        " FOR EACH ROW WHEN (NEW.user_id IS NULL) EXECUTE FUNCTION memory_categories_filed_for()"
    )
    op.drop_index("idx_memory_category", table_name="memory_categories")
    op.create_index("idx_memory_category", "memory_categories", ["user_id", "category_id", "memory_id"])

    op.drop_index("idx_access_app_time", table_name="memory_access_logs")
    op.create_index("idx_access_app_memory", "memory_access_logs", ["app_id", "memory_id", "accessed_at"])
    for table in VACUUMED:
        op.execute(f"ALTER TABLE {table} SET (autovacuum_vacuum_insert_scale_factor = 0.02)")


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    for table in VACUUMED:
        op.execute(f"ALTER TABLE {table} RESET (autovacuum_vacuum_insert_scale_factor)")
    op.drop_index("idx_access_app_memory", table_name="memory_access_logs")
    op.create_index("idx_access_app_time", "memory_access_logs", ["app_id", "accessed_at"])
    op.drop_index("idx_memory_category", table_name="memory_categories")
    op.create_index("idx_memory_category", "memory_categories", ["category_id", "memory_id"])
    op.execute("DROP TRIGGER filed_for ON memory_categories")
    op.execute("DROP FUNCTION memory_categories_filed_for()")
    op.drop_column("memory_categories", "user_id")
    op.create_index("idx_memory_app_state", "memories", ["app_id", "state"])
    op.create_index("idx_memory_user_app", "memories", ["user_id", "app_id"])
    op.create_index("idx_memory_user_state", "memories", ["user_id", "state", "created_at", "id"])
    op.execute("DROP STATISTICS memory_text_length")
    for index in ("long_text", "text", "thread_created", "app_created", "user_created"):
        op.drop_index(f"idx_memory_{index}", table_name="memories")

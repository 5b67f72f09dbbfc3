"""Filings tell the app of their memory, so that what is filed is counted by app without reading memories."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_filings"
down_revision = "2026_11_22_filing"
branch_labels = None
depends_on = None

OF_USER_AND_APP = """
CREATE OR REPLACE FUNCTION memory_categories_filed_for() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT user_id, app_id INTO NEW.user_id, NEW.app_id FROM memories WHERE id = NEW.memory_id;
    RETURN NEW;
END
$$
"""
OF_USER = """
CREATE OR REPLACE FUNCTION memory_categories_filed_for() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    SELECT user_id INTO NEW.user_id FROM memories WHERE id = NEW.memory_id;
    RETURN NEW;
END
$$
"""
FILED_FOR = (
    "CREATE TRIGGER filed_for BEFORE INSERT ON memory_categories"
    " FOR EACH ROW WHEN ({when}) EXECUTE FUNCTION memory_categories_filed_for()"
)


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column("memory_categories", sa.Column("app_id", sa.Uuid(), nullable=True))
    op.execute("UPDATE memory_categories AS f SET app_id = m.app_id FROM memories AS m WHERE m.id = f.memory_id")
    op.alter_column("memory_categories", "app_id", nullable=False)
    op.execute(OF_USER_AND_APP)
    op.execute("DROP TRIGGER filed_for ON memory_categories")
    op.execute(FILED_FOR.format(when="NEW.user_id IS NULL OR NEW.app_id IS NULL"))
    op.drop_index("idx_memory_category", table_name="memory_categories")
    op.create_index(
        "idx_memory_category",
        "memory_categories",
        ["user_id", "category_id", "memory_id"],
        postgresql_include=["app_id"],
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_memory_category", table_name="memory_categories")
    op.create_index("idx_memory_category", "memory_categories", ["user_id", "category_id", "memory_id"])
    op.execute("DROP TRIGGER filed_for ON memory_categories")
    op.execute(OF_USER)
    op.execute(FILED_FOR.format(when="NEW.user_id IS NULL"))
    op.drop_column("memory_categories", "app_id")

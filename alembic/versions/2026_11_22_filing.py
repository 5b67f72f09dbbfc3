"""Categories that the service assigns: which filings are its own, and which memories it has not looked at yet."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_filing"
down_revision = "2026_11_22_captures"
branch_labels = None
depends_on = None

# A text that has its vector, and had none of another model before, waits to be looked at; what a client has filed, or
# has taken everything from, ('infinity') stays as it is.
MARKED = """
CREATE FUNCTION embeddings_to_file() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NOT EXISTS (
        SELECT FROM embeddings AS e
        WHERE e.kind = NEW.kind AND e.id = NEW.id AND e.text_hash = NEW.text_hash AND e.model <> NEW.model
    ) THEN
        INSERT INTO category_marks (memory_id) SELECT m.id FROM memories AS m WHERE m.id = NEW.id
        ON CONFLICT (memory_id) DO UPDATE SET due_at = now(), attempts = 0, last_error = NULL
            WHERE category_marks.due_at < 'infinity';
    END IF;
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.add_column(
        "memory_categories", sa.Column("automatic", sa.Boolean(), server_default=sa.text("false"), nullable=False)
    )
    op.create_table(
        "category_marks",
        sa.Column("memory_id", sa.Uuid(), nullable=False),
        sa.Column("due_at", sa.DateTime(timezone=True), server_default=sa.text("now()"), nullable=False),
        sa.Column("attempts", sa.Integer(), server_default=sa.text("0"), nullable=False),
        sa.Column("last_error", sa.String(), nullable=True),
        sa.ForeignKeyConstraint(
            ["memory_id"], ["memories.id"], name="fk_category_marks_memory_id_memories", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("memory_id", name="pk_category_marks"),
    )
    op.execute(
        """
        INSERT INTO category_marks (memory_id)
        SELECT m.id FROM memories AS m
        WHERE EXISTS (SELECT FROM embeddings AS e WHERE e.kind = 'memory' AND e.id = m.id AND e.text_hash = m.hash)
            AND NOT EXISTS (SELECT FROM memory_categories AS f WHERE f.memory_id = m.id)
        """
    )
    op.create_index("idx_category_marks_due", "category_marks", ["due_at", "memory_id"])
    op.create_index(
        "idx_categories_described", "categories", ["name"], postgresql_where=sa.text("description IS NOT NULL")
    )
    op.execute(MARKED)
    op.execute(
        """
        CREATE TRIGGER to_file AFTER INSERT OR UPDATE OF text_hash ON embeddings FOR EACH ROW
        WHEN (NEW.kind = 'memory') EXECUTE FUNCTION embeddings_to_file()
        """
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TRIGGER to_file ON embeddings")
    op.execute("DROP FUNCTION embeddings_to_file()")
    op.drop_index("idx_categories_described", table_name="categories")
    op.drop_table("category_marks")
    op.drop_column("memory_categories", "automatic")

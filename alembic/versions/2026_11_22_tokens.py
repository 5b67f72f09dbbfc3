"""Vectors of the tokens of a text, beside those of its windows."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_tokens"
down_revision = "2026_11_22_described"
branch_labels = None
depends_on = None

# Whoever writes the vectors of another text, an older version among them, leaves no tokens of the one before.
OUTDATED = """
CREATE FUNCTION embeddings_replaced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM embedding_tokens AS t
    WHERE t.kind = NEW.kind AND t.id = NEW.id AND t.model = NEW.model AND t.text_hash <> NEW.text_hash;
    RETURN NULL;
END
$$
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.create_table(
        "embedding_tokens",
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("id", sa.Uuid(), nullable=False),
        sa.Column("model", sa.String(), nullable=False),
        sa.Column("text_hash", sa.String(), nullable=False),
        sa.Column("tokens", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(
            ["kind", "id", "model"],
            ["embeddings.kind", "embeddings.id", "embeddings.model"],
            name="fk_embedding_tokens_kind_embeddings",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("kind", "id", "model", name="pk_embedding_tokens"),
    )
    # What is nearly random does not get smaller.
    op.execute("ALTER TABLE embedding_tokens ALTER COLUMN tokens SET STORAGE EXTERNAL")
    op.execute(OUTDATED)
    op.execute(
        """
        CREATE TRIGGER to_forget_tokens AFTER UPDATE OF text_hash ON embeddings FOR EACH ROW
        WHEN (NEW.text_hash <> OLD.text_hash) EXECUTE FUNCTION embeddings_replaced()
        """
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TRIGGER to_forget_tokens ON embeddings")
    op.execute("DROP FUNCTION embeddings_replaced()")
    op.drop_table("embedding_tokens")

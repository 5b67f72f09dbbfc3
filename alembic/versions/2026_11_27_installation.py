"""The id of the installation that a database is, and the beats that it writes into its collections."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_installation"
down_revision = "2026_11_27_text_hashes"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(
        """
        CREATE TABLE installation (
            one boolean NOT NULL DEFAULT true,
            id uuid NOT NULL DEFAULT gen_random_uuid(),
            collection varchar,
            moved_from varchar[] NOT NULL DEFAULT '{}',
            created_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_installation PRIMARY KEY (one),
            CONSTRAINT ck_installation_one_row CHECK (one)
        )
        """
    )
    op.execute("INSERT INTO installation DEFAULT VALUES")
    op.execute(
        """
        CREATE TABLE index_beats (
            writer uuid NOT NULL,
            beat bigint NOT NULL,
            seen_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_index_beats PRIMARY KEY (writer)
        )
        """
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute("DROP TABLE index_beats, installation")

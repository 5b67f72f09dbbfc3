"""Browsers that are signed in."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_browser_sessions"
down_revision = "2026_11_27_writers"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("""
        SET LOCAL lock_timeout = '10s';
        CREATE TABLE browser_sessions (
            hash bytea NOT NULL CONSTRAINT ck_browser_sessions_hash CHECK (octet_length(hash) = 32),
            key_id uuid,
            credential bytea NOT NULL,
            created_at timestamptz NOT NULL DEFAULT now(),
            expires_at timestamptz NOT NULL,
            last_seen_at timestamptz NOT NULL DEFAULT now(),
            CONSTRAINT pk_browser_sessions PRIMARY KEY (hash),
            CONSTRAINT fk_browser_sessions_key_id_api_keys FOREIGN KEY (key_id) REFERENCES api_keys ON DELETE CASCADE
        );
        CREATE INDEX ix_browser_sessions_key_id ON browser_sessions (key_id);
        CREATE INDEX ix_browser_sessions_expires_at ON browser_sessions (expires_at);
    """)


def downgrade() -> None:
    op.execute("DROP TABLE browser_sessions")

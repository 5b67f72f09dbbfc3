"""Memories know the apps that wrote their present text and metadata, where those are other apps than the one that added
them."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_writers"
down_revision = "2026_11_27_captures"
branch_labels = None
depends_on = None

COLUMNS = """
SET LOCAL lock_timeout = '10s';
ALTER TABLE memories
    ADD COLUMN text_app_id uuid,
    ADD COLUMN metadata_app_id uuid,
    ADD COLUMN text_by_user boolean NOT NULL DEFAULT false;
"""

FILL = """
UPDATE memories AS m SET
    text_app_id = nullif(t.app_id, m.app_id),
    metadata_app_id = nullif(d.app_id, m.app_id),
    -- The user themself is recorded under the name of the default app.
    text_by_user = EXISTS (SELECT FROM apps AS a WHERE a.id = nullif(t.app_id, m.app_id) AND a.name = 'openmemory')
FROM memories AS changed
LEFT JOIN LATERAL (
    SELECT r.app_id FROM memory_revisions AS r
    WHERE r.memory_id = changed.id AND r.new_text IS DISTINCT FROM r.old_text ORDER BY r.revision DESC LIMIT 1
) AS t ON true
LEFT JOIN LATERAL (
    SELECT r.app_id
    FROM (
        SELECT app_id, revision, metadata IS DISTINCT FROM lag(metadata) OVER (ORDER BY revision) AS changes
        FROM memory_revisions WHERE memory_id = changed.id
    ) AS r
    WHERE r.changes ORDER BY r.revision DESC LIMIT 1
) AS d ON true
WHERE m.id = changed.id AND changed.revision > 1
    AND (nullif(t.app_id, m.app_id) IS NOT NULL OR nullif(d.app_id, m.app_id) IS NOT NULL);
"""

# The points of the index get the labels of the writers.
INDEX = """
INSERT INTO index_outbox (kind, id, user_id)
SELECT 'memory', id, user_id FROM memories
WHERE state = 'active' AND (text_app_id IS NOT NULL OR metadata_app_id IS NOT NULL)
ON CONFLICT (kind, id) DO UPDATE SET revision = index_outbox.revision + 1;

DROP INDEX IF EXISTS idx_memory_user_created, idx_memory_text;
CREATE INDEX idx_memory_user_created ON memories (user_id, created_at, id)
    INCLUDE (state, app_id, expires_at, valid_until, updated_at, importance, archived_at, deleted_at, namespace, kind,
             text_app_id, metadata_app_id, text_by_user);
CREATE INDEX idx_memory_text ON memories (user_id, content text_pattern_ops, id)
    INCLUDE (state, app_id, created_at, expires_at, valid_until, namespace, folded,
             text_app_id, metadata_app_id, text_by_user)
    WHERE octet_length(content) <= 400;
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';
DROP INDEX IF EXISTS idx_memory_user_created, idx_memory_text;
ALTER TABLE memories DROP COLUMN text_app_id, DROP COLUMN metadata_app_id, DROP COLUMN text_by_user;
CREATE INDEX idx_memory_user_created ON memories (user_id, created_at, id)
    INCLUDE (state, app_id, expires_at, valid_until, updated_at, importance, archived_at, deleted_at, namespace, kind);
CREATE INDEX idx_memory_text ON memories (user_id, content text_pattern_ops, id)
    INCLUDE (state, app_id, created_at, expires_at, valid_until, namespace, folded)
    WHERE octet_length(content) <= 400;
"""


def upgrade() -> None:
    for statements in (COLUMNS, FILL, INDEX):
        op.execute(statements)


def downgrade() -> None:
    op.execute(DOWNGRADE)

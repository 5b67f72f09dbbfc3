"""A memory that waits for its comparison has a version, so that what changes meanwhile waits on without a lock on it."""

from __future__ import annotations

from alembic import op

revision = "2026_11_28_comparisons"
down_revision = "2026_11_28_marks"
branch_labels = None
depends_on = None

FUNCTIONS = """
CREATE OR REPLACE FUNCTION embeddings_queue_comparison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pending_comparisons (memory_id) SELECT m.id FROM memories AS m WHERE m.id = NEW.id
    {on_conflict};
    RETURN NULL;
END
$$;
CREATE OR REPLACE FUNCTION memories_queue_comparison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pending_comparisons (memory_id) VALUES (NEW.id) {on_conflict};
    RETURN NULL;
END
$$;
CREATE OR REPLACE FUNCTION index_generations_queue_comparisons() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pending_comparisons (memory_id) SELECT m.id FROM memories AS m WHERE m.state = 'active' ORDER BY m.id
    {on_conflict};
    RETURN NULL;
END
$$;
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute("ALTER TABLE pending_comparisons ADD COLUMN version integer NOT NULL DEFAULT 0")
    bumped = "ON CONFLICT (memory_id) DO UPDATE SET version = pending_comparisons.version + 1"
    op.execute(FUNCTIONS.format(on_conflict=bumped))


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute(FUNCTIONS.format(on_conflict="ON CONFLICT DO NOTHING"))
    op.execute("ALTER TABLE pending_comparisons DROP COLUMN version")

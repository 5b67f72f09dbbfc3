"""The memories that are near to later ones, and what the user decided about such pairs."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_near_memories"
down_revision = "2026_11_27_tags_and_rules"
branch_labels = None
depends_on = None

TABLES = """
SET LOCAL lock_timeout = '10s';

-- Pairs of memories of which the newer may replace the older. Derived from texts and vectors.
CREATE TABLE near_memories (
    newer uuid NOT NULL,
    older uuid NOT NULL,
    user_id uuid NOT NULL,
    newer_hash varchar NOT NULL,
    older_hash varchar NOT NULL,
    nearness real,
    probability real NOT NULL,
    said_at timestamptz NOT NULL,
    CONSTRAINT pk_near_memories PRIMARY KEY (newer, older),
    CONSTRAINT fk_near_memories_newer_memories FOREIGN KEY (newer) REFERENCES memories (id) ON DELETE CASCADE,
    CONSTRAINT fk_near_memories_older_memories FOREIGN KEY (older) REFERENCES memories (id) ON DELETE CASCADE
);
CREATE INDEX ix_near_memories_older ON near_memories (older);
CREATE INDEX ix_near_memories_user ON near_memories (user_id, said_at, newer, older);

-- The memories that are to be compared with those near to them.
CREATE TABLE pending_comparisons (
    memory_id uuid NOT NULL,
    CONSTRAINT pk_pending_comparisons PRIMARY KEY (memory_id),
    CONSTRAINT fk_pending_comparisons_memory_id_memories FOREIGN KEY (memory_id) REFERENCES memories (id)
        ON DELETE CASCADE
);

CREATE FUNCTION embeddings_queue_comparison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pending_comparisons (memory_id) SELECT m.id FROM memories AS m WHERE m.id = NEW.id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_comparison AFTER INSERT OR UPDATE OF text_hash ON embeddings
    FOR EACH ROW WHEN (NEW.kind = 'memory') EXECUTE FUNCTION embeddings_queue_comparison();

-- While a memory was away, or in another namespace, others were not compared with it.
CREATE FUNCTION memories_queue_comparison() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pending_comparisons (memory_id) VALUES (NEW.id) ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_comparison AFTER UPDATE OF state, namespace ON memories
    FOR EACH ROW WHEN (NEW.state = 'active' AND (OLD.state <> 'active' OR OLD.namespace <> NEW.namespace))
    EXECUTE FUNCTION memories_queue_comparison();

-- Another model took over: other memories may be near.
CREATE FUNCTION index_generations_queue_comparisons() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO pending_comparisons (memory_id) SELECT m.id FROM memories AS m WHERE m.state = 'active' ORDER BY m.id
    ON CONFLICT DO NOTHING;
    RETURN NULL;
END
$$;
CREATE TRIGGER queue_comparisons AFTER UPDATE OF state ON index_generations
    FOR EACH ROW WHEN (NEW.state = 'active' AND OLD.state <> 'active')
    EXECUTE FUNCTION index_generations_queue_comparisons();

INSERT INTO pending_comparisons (memory_id)
SELECT DISTINCT m.id FROM embeddings AS e JOIN memories AS m ON m.id = e.id WHERE e.kind = 'memory';

-- What the user decided about two memories: both hold, or they are not about the same.
ALTER TABLE kept_pairs ADD COLUMN decision varchar NOT NULL DEFAULT 'both',
    ADD CONSTRAINT ck_kept_pairs_decision CHECK (decision IN ('both', 'different'));
"""

DOWNGRADE = """
SET LOCAL lock_timeout = '10s';
ALTER TABLE kept_pairs DROP COLUMN decision;
DROP TRIGGER queue_comparisons ON index_generations;
DROP TRIGGER queue_comparison ON memories;
DROP TRIGGER queue_comparison ON embeddings;
DROP FUNCTION index_generations_queue_comparisons();
DROP FUNCTION memories_queue_comparison();
DROP FUNCTION embeddings_queue_comparison();
DROP TABLE pending_comparisons;
DROP TABLE near_memories;
"""


def upgrade() -> None:
    op.execute(TABLES)


def downgrade() -> None:
    op.execute(DOWNGRADE)

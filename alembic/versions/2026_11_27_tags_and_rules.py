"""Tags and entities are words of their memories, and the rules of a project have an index."""

from __future__ import annotations

from alembic import op

revision = "2026_11_27_tags_and_rules"
down_revision = "2026_11_27_behind"
branch_labels = None
depends_on = None

_HAS_NAMES = "jsonb_typeof(metadata -> 'tags') = 'array' OR jsonb_typeof(metadata -> 'entities') = 'array'"

WORDS = """
SET LOCAL lock_timeout = '10s';

-- The tags and entities of a memory as a text. A client may have stored anything in their place.
CREATE FUNCTION memory_names(metadata jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT coalesce(string_agg(left(name #>> '{}', 200), E'\\n'), '')
    FROM (SELECT name FROM unnest(ARRAY['tags', 'entities']) AS field,
        jsonb_array_elements(CASE jsonb_typeof(metadata -> field) WHEN 'array' THEN metadata -> field ELSE '[]' END)
            AS name
        WHERE jsonb_typeof(name) = 'string' LIMIT 64) AS names
$$;

-- The words of a memory. Its tags and entities are added without a position, so that they do not count as its length.
CREATE FUNCTION memory_words(language regconfig, content text, metadata jsonb) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
    SELECT CASE WHEN metadata ? 'tags' OR metadata ? 'entities'
        THEN lexical_words(language, content) || strip(lexical_words(language, memory_names(metadata)))
        ELSE lexical_words(language, content) END
$$;

CREATE OR REPLACE FUNCTION memories_derive_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.words := CASE WHEN NEW.kind = 'state' THEN ''
        ELSE memory_words((SELECT language FROM lexicon)::regconfig, NEW.content, NEW.metadata) END;
    NEW.word_count := length(ts_filter(NEW.words, '{a,b,c,d}'));
    RETURN NEW;
END
$$;
DROP TRIGGER derive_words ON memories;
CREATE TRIGGER derive_words BEFORE INSERT OR UPDATE OF content, metadata ON memories
    FOR EACH ROW EXECUTE FUNCTION memories_derive_words();
"""

FILL = f"""
UPDATE memories AS m SET words = memory_words((SELECT language FROM lexicon)::regconfig, content, metadata)
WHERE kind <> 'state' AND ({_HAS_NAMES});

INSERT INTO index_outbox (kind, id, user_id)
SELECT 'memory', id, user_id FROM memories WHERE state = 'active' AND kind <> 'state' AND ({_HAS_NAMES})
ON CONFLICT (kind, id) DO UPDATE SET revision = index_outbox.revision + 1;
"""

INDEX = """
CREATE INDEX idx_memory_standing ON memories (user_id, namespace, created_at DESC, id)
    WHERE state = 'active' AND (kind IN ('preference', 'rule', 'instruction')
        OR (kind = 'decision' AND metadata @> '{"standing": true}'));
"""

DOWNGRADE = f"""
SET LOCAL lock_timeout = '10s';
DROP INDEX idx_memory_standing;
CREATE OR REPLACE FUNCTION memories_derive_words() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.words := CASE WHEN NEW.kind = 'state' THEN ''
        ELSE lexical_words((SELECT language FROM lexicon)::regconfig, NEW.content) END;
    NEW.word_count := length(ts_filter(NEW.words, '{{a,b,c,d}}'));
    RETURN NEW;
END
$$;
DROP TRIGGER derive_words ON memories;
CREATE TRIGGER derive_words BEFORE INSERT OR UPDATE OF content ON memories
    FOR EACH ROW EXECUTE FUNCTION memories_derive_words();
UPDATE memories AS m SET words = lexical_words((SELECT language FROM lexicon)::regconfig, content)
WHERE kind <> 'state' AND ({_HAS_NAMES});
DROP FUNCTION memory_words(regconfig, text, jsonb);
DROP FUNCTION memory_names(jsonb);
"""


def upgrade() -> None:
    for statements in (WORDS, FILL, INDEX):
        op.execute(statements)


def downgrade() -> None:
    op.execute(DOWNGRADE)

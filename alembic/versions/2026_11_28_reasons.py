"""The reason of a memory is words of it, as its tags and entities are."""

from __future__ import annotations

from alembic import op

revision = "2026_11_28_reasons"
down_revision = "2026_11_28_comparisons"
branch_labels = None
depends_on = None

_NAMES = """
CREATE OR REPLACE FUNCTION memory_names(metadata jsonb) RETURNS text
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE AS $$
    SELECT coalesce(string_agg(left(name #>> '{{}}', 200), E'\\n'), ''){reason}
    FROM (SELECT name FROM unnest(ARRAY['tags', 'entities']) AS field,
        jsonb_array_elements(CASE jsonb_typeof(metadata -> field) WHEN 'array' THEN metadata -> field ELSE '[]' END)
            AS name
        WHERE jsonb_typeof(name) = 'string' LIMIT 64) AS names
$$;
"""

_WORDS = """
CREATE OR REPLACE FUNCTION memory_words(language regconfig, content text, metadata jsonb) RETURNS tsvector
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
    SELECT CASE WHEN metadata ? 'tags' OR metadata ? 'entities'{reason}
        THEN lexical_words(language, content) || strip(lexical_words(language, memory_names(metadata)))
        ELSE lexical_words(language, content) END
$$;
"""

_REASON = """ ||
        CASE jsonb_typeof(metadata -> 'reason') WHEN 'string' THEN E'\\n' || left(metadata ->> 'reason', 300) ELSE '' END"""

_FILL = """
UPDATE memories AS m SET words = memory_words((SELECT language FROM lexicon)::regconfig, content, metadata)
WHERE kind <> 'state' AND jsonb_typeof(metadata -> 'reason') = 'string';

INSERT INTO index_outbox (kind, id, user_id)
SELECT 'memory', id, user_id FROM memories
WHERE state = 'active' AND kind <> 'state' AND jsonb_typeof(metadata -> 'reason') = 'string'
ON CONFLICT (kind, id) DO UPDATE SET revision = index_outbox.revision + 1;
"""


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute(_NAMES.format(reason=_REASON))
    op.execute(_WORDS.format(reason=" OR metadata ? 'reason'"))
    op.execute(_FILL)


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '10s'")
    op.execute(_NAMES.format(reason=""))
    op.execute(_WORDS.format(reason=""))
    op.execute(_FILL)

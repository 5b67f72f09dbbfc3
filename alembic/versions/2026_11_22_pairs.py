"""Memories of pairs (`key=value | key=value`) are looked up by their keys when another one is added."""

from __future__ import annotations

import sqlalchemy as sa

from alembic import op

revision = "2026_11_22_pairs"
down_revision = "2026_11_22_usage"
branch_labels = None
depends_on = None

# What stands before the first `=` of each part, in lower case. An expression, not a query: planned into what uses it.
PAIR_KEYS = r"""
CREATE FUNCTION pair_keys(content text) RETURNS text[]
LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE COST 1000 AS $$
    SELECT string_to_array(
        lower(btrim(regexp_replace(content, '\s*=[^|]*(\|\s*)?', '|', 'g'), E' \t\r\n|')), '|'
    )
$$
"""

# Whether every part looks like a pair. Most texts are refused at their second word.
LIKE_PAIRS = r"length(content) <= 4096 AND content ~ '^\s*[^\s=|]+\s*=[^|]*(\|\s*[^\s=|]+\s*=[^|]*)*$'"


def upgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.execute(PAIR_KEYS)
    op.create_index(
        "idx_memory_pairs",
        "memories",
        ["app_id", sa.literal_column("pair_keys(content)")],
        postgresql_using="gin",
        postgresql_with={"fastupdate": "off"},
        postgresql_where=sa.text(f"state = 'active' AND {LIKE_PAIRS}"),
    )


def downgrade() -> None:
    op.execute("SET LOCAL lock_timeout = '5s'")
    op.drop_index("idx_memory_pairs", table_name="memories")
    op.execute("DROP FUNCTION pair_keys(text)")

"""Every table of the first release, with its indexes, functions and triggers."""

from __future__ import annotations

from pathlib import Path

from alembic import op

revision = "2026_11_25_first"
down_revision = None
branch_labels = None
depends_on = None

DROP = """
DROP TABLE
    users, apps, access_controls, api_keys, rate_limits, audit_events, lexicon, lexical_statistics,
    memories, memory_revisions, memory_status_history, memory_undo, kept_pairs, archive_policies, memory_access_logs,
    categories, category_descriptions, memory_categories, pending_categorizations, reclassification_requests,
    captures, capture_usage, idempotency_keys,
    projects, memory_links, anchors, read_usage, sources, passages, passage_statistics, object_keys, object_deletions,
    index_outbox, embeddings, embedding_tokens, index_generations, index_lease, sync_runs,
    configs, mcp_sessions, mcp_messages;

DROP FUNCTION
    audit_events_append_only(), memories_derive_words(), passages_derive_words(), sources_delete_object(), passage_text(text, text, text),
    memory_categories_set_owner(), embeddings_queue_categorization(),
    embeddings_delete_old_tokens(), key_value_keys(text), lexical_keys(uuid, text, tsvector), lexical_phrase(regconfig, text),
    lexical_words(regconfig, text), lexical_split(text), lexical_compounds(text), lexical_dates(text),
    lexical_folded(text), lexical_bigrams(text);

DROP TYPE memory_state;
"""
"""One statement for all tables, because they refer to each other. Their indexes and triggers go with them."""

STATEMENTS = Path(__file__).with_suffix("")
"""The folder of the SQL files, which run in the order of their names."""


def upgrade() -> None:
    for file in sorted(STATEMENTS.glob("*.sql")):
        run(file.read_text(encoding="utf-8"))


def downgrade() -> None:
    """Remove everything but the extensions, which the database may have had before."""
    run(DROP)


def run(statements: str) -> None:
    """Send statements as they are. Their patterns hold characters that would pass for parameters."""
    op.get_bind().exec_driver_sql(statements, execution_options={"no_parameters": True})

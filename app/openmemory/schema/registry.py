"""Every table of the schema: how the rows of a user are erased, and what is not in archives, bundles and imports.

`schema.archives` has what archives hold of them. A new table is an entry here. A new column is one there, or `omitted`.
"""

from __future__ import annotations

from openmemory.schema.description import RegisteredTable as Table

_PERSON = "A bundle is about a project. It has no logs, rules and histories."
_CATEGORIES = "A user's categories are not those of others."
_CHECKOUT = "It is about one checkout."
_VERBATIM = "What was said and read is not shared."
_OURS = "No other program has it."
_ACCESS = "It opens a door."
_QUEUE = "It is work that waits. An import makes its own."
_COMPUTED = "It is computed from what archives hold."
_COUNTS = "It counts what happened here."
_CONNECTION = "It ends with a connection."
_SERVICE = "It is about the service, and not about a user."

_IMPORTER = {"the user who imports": "user_id"}

TABLES = {
    one.name: one
    for one in (
        Table("users", "statement", "memories.erasure.erase_user", unbundled=_PERSON,
            omitted={"counts changes of rules": "rules_revision"}),
        Table("apps", "users", unbundled=_PERSON),
        Table("access_controls", "users", unbundled=_PERSON, omitted=_IMPORTER | {"generated": "object_key"}),
        Table("archive_policies", "users", unbundled=_PERSON, omitted=_IMPORTER),
        Table("memories", "users", omitted={
            "computed from the text": "words word_count folded",
            "computed from the revisions": "text_app_id metadata_app_id",
        }),
        Table("memory_revisions", "memories", unbundled=_PERSON,
            omitted={"the user who imports": "changed_by", "nothing refers to it": "id"}),
        Table("memory_status_history", "memories", unbundled=_PERSON),
        Table("memory_access_logs", "memories", unbundled=_PERSON, omitted={
            "of accesses without an app, which are not exported": "app_name", "the time of the import": "imported_at",
            "unknown of an imported query": "namespaces",
        }),
        Table("memory_links", "memories", omitted=_IMPORTER),
        Table("categories", "statement", "memories.erasure.erase_user, if nobody else has it", unbundled=_CATEGORIES),
        Table("memory_categories", "memories", unbundled=_CATEGORIES, omitted={"of the memory": "user_id app_id"}),
        Table("category_descriptions", "users", unbundled=_CATEGORIES, unimported=_OURS),
        Table("projects", "users", unbundled=_CHECKOUT, omitted=_IMPORTER | {
            "nothing refers to it": "id", "the same in all rows": "state expires_at valid_until",
        }),
        Table("anchors", "users", unbundled=_CHECKOUT, unimported=_OURS, omitted=_IMPORTER),
        Table("captures", "users", unbundled=_VERBATIM, unimported=_OURS, omitted=_IMPORTER | {
            "computed from the operations": "memory_ids",
            "no worker holds it": "due_at behind holder",
        }),
        Table("sources", "users", unbundled=_VERBATIM, omitted=_IMPORTER | {
            "of an original, which no archive has": "object_key", "computed from the passages": "expires_at length",
            "the same in all rows": "valid_until",
        }),
        Table("passages", "users", unbundled=_VERBATIM, omitted={
            "of the source": "user_id app_id namespace thread_id", "computed from the text": "hash words word_count",
            "the same in all rows": "valid_until", "counts changes for the index": "revision",
        }),
        Table("embeddings", "statement", "memories.erasure.erase, sources.passages.erase", unbundled=_COMPUTED,
            unimported="Other programs have other models.", omitted={"the time of the import": "created_at"}),

        Table("api_keys", "users", unarchived=_ACCESS),
        Table("browser_sessions", "users", unarchived=_ACCESS),
        Table("object_keys", "users", unarchived="Originals are not in archives."),
        Table("idempotency_keys", "users", unarchived="A request is not repeated at another service."),
        Table("memory_undo", "memories", unarchived="Changes can be undone for a short time."),
        Table("kept_pairs", "memories", unarchived="After an import the pair is listed again."),
        Table("near_memories", "memories", unarchived=_COMPUTED),
        Table("embedding_tokens", "embeddings", unarchived=_COMPUTED),
        Table("lexical_statistics", "users", unarchived=_COMPUTED),
        Table("passage_statistics", "users", unarchived=_COMPUTED),
        Table("read_usage", "users", unarchived=_COUNTS),
        Table("capture_usage", "users", unarchived=_COUNTS),
        Table("rate_limits", "kept", "It counts the last minute, and is pruned.", unarchived=_COUNTS),
        Table("pending_comparisons", "memories", unarchived=_QUEUE),
        Table("pending_categorizations", "memories", unarchived=_QUEUE),
        Table("reclassification_requests", "users", unarchived=_QUEUE),
        Table("index_outbox", "statement", "index.sync.delivery, once the item is not in the index", unarchived=_QUEUE),
        Table("object_deletions", "kept", "It names an object until that is deleted.", unarchived=_QUEUE),
        Table("audit_events", "kept", "It says who did what, for `audit.keep`.", unarchived="Nobody writes the past."),
        Table("mcp_sessions", "kept", _CONNECTION, unarchived=_CONNECTION),
        Table("mcp_messages", "kept", _CONNECTION, unarchived=_CONNECTION),
        *(
            Table(name, "kept", _SERVICE, unarchived=_SERVICE)
            for name in (
                "alembic_version", "configs", "index_beats", "index_generations", "index_lease", "installation",
                "lexicon", "sync_runs",
            )
        ),
    )
}  # fmt: skip
"""All tables by name."""

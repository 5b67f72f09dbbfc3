"""Writes an imported archive: rows, revisions, status history, category assignments, outbox entries, vectors and access
log, all or none. Each step is one statement for any number of memories.

`planning` makes the plan first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import text

from openmemory.access import restore as of_access
from openmemory.access.restore import DERIVED
from openmemory.audit import access_log, audit_log
from openmemory.audit.access_log import AccessType
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.index.sync import outbox
from openmemory.memories.fields import COPIED, names_of
from openmemory.memories.lifecycle.restore import restore_policies

# For an existing memory, the archive's texts are appended to its revisions, from the first that differs.
_REVISIONS = text(
    """
    INSERT INTO restored_revisions (memory, revision, old_text, new_text, metadata, app_id, changed_at)
    SELECT r.target,
        CASE r.fate WHEN 'add' THEN v.revision
            ELSE r.before_revision + row_number() OVER (PARTITION BY r.id ORDER BY v.revision) END,
        CASE WHEN r.fate = 'replace' AND v.revision = f.revision THEN r.before_text ELSE v.old_text END,
        v.new_text, v.metadata, a.target, v.changed_at
    FROM incoming_revisions AS v
    JOIN restored AS r ON r.id = v.memory_id AND (r.fate = 'add' OR (r.fate = 'replace' AND r.edited))
    LEFT JOIN (
        SELECT v.memory_id, min(v.revision) AS revision
        FROM incoming_revisions AS v JOIN restored AS r ON r.id = v.memory_id AND r.fate = 'replace' AND r.edited
        WHERE NOT EXISTS (
            SELECT FROM memory_revisions AS h
            WHERE h.memory_id = r.target AND h.revision = v.revision AND h.new_text = v.new_text)
        GROUP BY v.memory_id
    ) AS f ON f.memory_id = v.memory_id
    LEFT JOIN incoming_apps AS a ON a.id = v.app_id
    WHERE r.fate = 'add' OR v.revision >= f.revision
    """
)
_PRESENT_REVISIONS = text(
    """
    WITH newest AS (
        SELECT DISTINCT ON (memory) memory, revision, new_text FROM restored_revisions ORDER BY memory, revision DESC
    )
    INSERT INTO restored_revisions (memory, revision, old_text, new_text, metadata, app_id, changed_at)
    SELECT r.target,
        CASE r.fate WHEN 'add' THEN greatest(n.revision + 1, i.revision)
            ELSE coalesce(n.revision, r.before_revision) + 1 END,
        coalesce(n.new_text, r.before_text), i.content, i.metadata, CASE r.fate WHEN 'add' THEN r.app_id ELSE :app END,
        CASE r.fate WHEN 'add' THEN i.updated_at ELSE now() END
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id LEFT JOIN newest AS n ON n.memory = r.target
    WHERE (r.fate = 'add' OR (r.fate = 'replace' AND r.edited))
        AND (n.memory IS NULL OR n.new_text <> i.content OR (r.fate = 'add' AND n.revision < i.revision))
    """
)
_NUMBER = text(
    """
    UPDATE restored AS r SET revision = n.revision
    FROM (SELECT memory, max(revision) AS revision FROM restored_revisions GROUP BY memory) AS n
    WHERE n.memory = r.target
    """
)
_KEEP_REVISIONS = text(
    """
    INSERT INTO memory_revisions (memory_id, revision, old_text, new_text, metadata, changed_by, app_id, changed_at)
    SELECT memory, revision, old_text, new_text, metadata, :user, app_id, changed_at FROM restored_revisions
    """
)

# The apps of the newest revisions that changed the text and the metadata. Whether the user themself wrote the text is
# copied.
_WRITERS = text(
    """
    UPDATE memories AS m SET text_app_id = nullif(t.app_id, m.app_id), metadata_app_id = nullif(d.app_id, m.app_id)
    FROM restored AS r
    LEFT JOIN LATERAL (
        SELECT v.app_id FROM memory_revisions AS v
        WHERE v.memory_id = r.target AND v.new_text IS DISTINCT FROM v.old_text ORDER BY v.revision DESC LIMIT 1
    ) AS t ON true
    LEFT JOIN LATERAL (
        SELECT v.app_id
        FROM (
            SELECT app_id, revision, metadata IS DISTINCT FROM lag(metadata) OVER (ORDER BY revision) AS changes
            FROM memory_revisions WHERE memory_id = r.target
        ) AS v
        WHERE v.changes ORDER BY v.revision DESC LIMIT 1
    ) AS d ON true
    WHERE m.id = r.target AND (r.fate = 'add' OR (r.fate = 'replace' AND r.touched))
        AND (m.text_app_id, m.metadata_app_id)
            IS DISTINCT FROM (nullif(t.app_id, m.app_id), nullif(d.app_id, m.app_id))
    """
)

# Memories may swap their texts. None of them is active meanwhile, so the unique index is not violated.
_MAKE_ROOM = text(
    """
    UPDATE memories AS m SET state = 'archived'
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
    WHERE m.id = r.target AND r.fate = 'replace' AND m.state = 'active'
        AND (r.final, m.namespace, m.app_id, m.hash) IS DISTINCT FROM ('active', i.namespace, r.app_id, i.hash)
    """
)
_REPLACE = text(
    f"""
    UPDATE memories AS m SET {", ".join(f"{one.name} = i.{one.name}" for one in COPIED)},
        archived_at = CASE WHEN r.duplicate THEN coalesce(i.archived_at, m.archived_at, now()) ELSE i.archived_at END,
        app_id = r.app_id, superseded_by = r.superseded_by, state = r.final, revision = coalesce(r.revision, m.revision)
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
    WHERE m.id = r.target AND r.fate = 'replace' AND r.touched
    """  # noqa: S608 - as above
)
# In the same order as every other transaction that adds texts, to prevent deadlocks.
_ADD = text(
    f"""
    INSERT INTO memories (id, user_id, app_id, {names_of(COPIED)}, state, archived_at, superseded_by, revision)
    SELECT r.target, :user, r.app_id, {names_of(COPIED, "i")}, r.final,
        CASE WHEN r.duplicate THEN coalesce(i.archived_at, now()) ELSE i.archived_at END, r.superseded_by, r.revision
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id
    WHERE r.fate = 'add'
    ORDER BY i.namespace COLLATE "C", CAST(r.app_id AS text) COLLATE "C", i.hash COLLATE "C"
    """  # noqa: S608 - as above
)

_UNASSIGN = text(
    """
    DELETE FROM memory_categories AS c USING restored AS r
    WHERE c.memory_id = r.target AND r.fate = 'replace' AND r.edited
        AND NOT EXISTS (
            SELECT FROM restored_assignments AS a WHERE a.memory = c.memory_id AND a.category = c.category_id)
    """
)
_KEEP_ASSIGNMENTS = text(
    """
    INSERT INTO memory_categories (memory_id, category_id, automatic)
    SELECT memory, category, automatic FROM restored_assignments ORDER BY memory, category
    ON CONFLICT (memory_id, category_id) DO UPDATE SET automatic = false
        WHERE memory_categories.automatic AND NOT excluded.automatic
    """
)
_HISTORY = text(
    f"""
    INSERT INTO memory_status_history (id, memory_id, changed_by, app_id, old_state, new_state, changed_at, reason)
    SELECT CASE WHEN e.id IS NULL THEN h.id ELSE {DERIVED.format(id="h.id")} END,
        r.target, :user, a.target, h.old_state, h.new_state, h.changed_at, h.reason
    FROM incoming_status_history AS h
    JOIN restored AS r ON r.id = h.memory_id AND r.fate <> 'skip'
    LEFT JOIN memory_status_history AS e ON e.id = h.id
    LEFT JOIN incoming_apps AS a ON a.id = h.app_id
    WHERE e.id IS NULL OR e.memory_id <> r.target
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - as above
)
# The state change that this import makes, which is not in the archive's history.
_PRESENT_STATES = text(
    """
    WITH newest AS (
        SELECT DISTINCT ON (h.memory_id) h.memory_id, h.new_state
        FROM memory_status_history AS h JOIN restored AS r ON r.target = h.memory_id AND r.fate <> 'skip'
        ORDER BY h.memory_id, h.changed_at DESC, h.new_state = r.final DESC
    )
    INSERT INTO memory_status_history (memory_id, changed_by, app_id, old_state, new_state, changed_at)
    SELECT r.target, :user, NULL, n.new_state, r.final, CASE WHEN n.memory_id IS NULL THEN i.created_at ELSE now() END
    FROM restored AS r JOIN incoming_memories AS i ON i.id = r.id LEFT JOIN newest AS n ON n.memory_id = r.target
    WHERE (r.fate = 'add' OR (r.fate = 'replace' AND r.touched)) AND n.new_state IS DISTINCT FROM r.final
    """
)
_ACCESSES = text(
    f"""
    INSERT INTO memory_access_logs (id, memory_id, app_id, accessed_at, access_type, metadata, imported_at)
    SELECT CASE WHEN e.id IS NULL THEN l.id ELSE {DERIVED.format(id="l.id")} END,
        r.target, coalesce(a.target, :app), l.accessed_at, l.access_type, l.metadata, now()
    FROM incoming_access_logs AS l
    JOIN restored AS r ON r.id = l.memory_id AND r.fate <> 'skip'
    LEFT JOIN memory_access_logs AS e ON e.id = l.id
    LEFT JOIN incoming_apps AS a ON a.id = l.app_id
    WHERE e.id IS NULL OR e.memory_id <> r.target
    ON CONFLICT DO NOTHING
    """  # noqa: S608 - as above
)
# Only vectors that models in use made from the text as it is now stored.
_VECTORS = text(
    """
    INSERT INTO embeddings (kind, id, model, text_hash, vector, chunking)
    SELECT 'memory', r.target, v.model, v.text_hash, v.vector, v.chunking
    FROM (SELECT DISTINCT ON (id, model) * FROM incoming_vectors) AS v
    JOIN restored AS r ON r.id = v.id AND r.fate <> 'skip'
    JOIN incoming_memories AS i ON i.id = r.id AND i.hash = v.text_hash
    WHERE (v.model, v.dimension) IN (
        SELECT model, dimension FROM index_generations
        UNION SELECT * FROM unnest(CAST(:models AS text[]), CAST(:dimensions AS integer[])))
    ON CONFLICT (kind, id, model) DO UPDATE
        SET text_hash = excluded.text_hash, vector = excluded.vector, chunking = excluded.chunking, created_at = now()
        WHERE embeddings.text_hash <> excluded.text_hash
    """
)
_ADD_ENTRIES = text(
    outbox.ADD_ENTRIES.format(
        kind="'memory'",
        id="r.target",
        user="m.user_id",
        source="""FROM restored AS r JOIN memories AS m ON m.id = r.target
            WHERE (r.fate = 'add' AND r.final = 'active') OR (r.fate = 'replace' AND r.touched) ORDER BY 2""",
    )
)
_COUNT = text(
    """
    SELECT count(*) FILTER (WHERE fate = 'add') AS added,
        count(*) FILTER (WHERE fate = 'replace' AND touched) AS replaced,
        count(*) FILTER (WHERE fate = 'replace' AND NOT touched) AS unchanged,
        count(*) FILTER (WHERE fate = 'skip') AS skipped,
        count(*) FILTER (WHERE fate = 'add' AND renamed) AS renamed,
        count(*) FILTER (WHERE duplicate) AS archived_duplicates
    FROM restored
    """
)
_WRITTEN = "SELECT target AS id FROM restored WHERE fate = 'add' OR (fate = 'replace' AND touched)"
_LOST = text(
    """
    (SELECT 'rule' AS kind, id, problem FROM incoming_access_controls
        WHERE problem IS NOT NULL ORDER BY place LIMIT :most)
    UNION ALL (SELECT 'policy', id, problem FROM incoming_archive_policies
        WHERE problem IS NOT NULL ORDER BY place LIMIT :most)
    UNION ALL (SELECT 'category', id, problem FROM incoming_categories WHERE problem <> '' ORDER BY place LIMIT :most)
    UNION ALL (
        SELECT 'memory', i.id, 'superseded_by: names a memory that is not there'
        FROM incoming_memories AS i JOIN restored AS r ON r.id = i.id
        WHERE i.superseded_by IS NOT NULL AND r.superseded_by IS NULL AND r.fate <> 'skip'
        ORDER BY i.place LIMIT :most)
    UNION ALL (
        SELECT DISTINCT 'memory', f.memory, 'category_ids: names a category that is not there'
        FROM (
            SELECT id AS memory, unnest(category_ids) AS category FROM incoming_memories
            UNION ALL SELECT memory_id, category_id FROM incoming_memory_categories
        ) AS f
        JOIN restored AS r ON r.id = f.memory AND r.fate <> 'skip'
        WHERE NOT EXISTS (SELECT FROM incoming_categories AS c WHERE c.id = f.category) LIMIT :most)
    """
)


async def write(
    tx: Tx, caller: Caller, *, detail: Mapping[str, Any], models: Sequence[tuple[str, int]]
) -> dict[str, int]:
    """Execute the plan. `models`: the embedding models in use with their dimensions; their vectors are imported.
    `detail` is said in the audit event too.

    Returns the number of rows written, by kind, and the outcomes of the memories.

    Raises:
        IntegrityError: a concurrent transaction wrote one of the ids or texts. Plan again and retry.
    """
    values = {"user": caller.user_id, "app": caller.app_id}
    await tx.execute(_REVISIONS)
    await tx.execute(_PRESENT_REVISIONS, values)
    await tx.execute(_NUMBER)
    await tx.execute(_MAKE_ROOM)
    await tx.execute(_ADD, values)
    await tx.execute(_REPLACE)  # what was there may be superseded by what is new
    await tx.execute(_UNASSIGN)
    await tx.execute(_KEEP_ASSIGNMENTS)
    revisions = (await tx.execute(_KEEP_REVISIONS, values)).rowcount
    await tx.execute(_WRITERS)
    history = (await tx.execute(_HISTORY, values)).rowcount
    await tx.execute(_PRESENT_STATES, values)
    access_logs = (await tx.execute(_ACCESSES, values)).rowcount
    in_use = {"models": [name for name, _ in models], "dimensions": [size for _, size in models]}
    vectors = (await tx.execute(_VECTORS, in_use)).rowcount
    await tx.execute(_ADD_ENTRIES)
    rules = await of_access.restore_rules(tx, caller)
    policies = await restore_policies(tx, caller)
    outcomes = (await tx.execute(_COUNT)).one()._mapping
    done = {**outcomes, "rules": rules, "policies": policies}
    await access_log.log_chosen(tx, caller, AccessType.UPDATE, _REPLACED, {"operation": "import"})
    await audit_log.record_chosen(tx, caller, AuditAction.MEMORY_IMPORT, _WRITTEN, detail={**detail, **done})
    return {**done, "revisions": revisions, "history": history, "access_logs": access_logs, "vectors": vectors}


_REPLACED = "SELECT target AS id FROM restored WHERE fate = 'replace' AND touched"


async def lost(tx: Tx, most: int) -> list[tuple[str, str, str]]:
    """The records that were not written because they refer to something missing: kind, id in the archive, reason.

    `categories.restore` must have run: it says which descriptions were not written.
    """
    return [(row.kind, str(row.id), row.problem) for row in await tx.execute(_LOST, {"most": most})]

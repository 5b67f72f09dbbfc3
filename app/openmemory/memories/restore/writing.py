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
from openmemory.database.sql_files import load_sql
from openmemory.identity.caller import Caller
from openmemory.index.sync import outbox
from openmemory.memories.fields import COPIED, names_of
from openmemory.memories.lifecycle.restore import restore_policies

_REVISIONS = text(load_sql(__name__, "revisions"))
_PRESENT_REVISIONS = text(load_sql(__name__, "present_revisions"))
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

_WRITERS = text(load_sql(__name__, "writers"))

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
_HISTORY = text(load_sql(__name__, "history", derived_id=DERIVED.format(id="h.id")))
_PRESENT_STATES = text(load_sql(__name__, "present_states"))
_ACCESSES = text(load_sql(__name__, "accesses", derived_id=DERIVED.format(id="l.id")))
_VECTORS = text(load_sql(__name__, "vectors"))
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
_WRITTEN_IDS = "SELECT target AS id FROM restored WHERE fate = 'add' OR (fate = 'replace' AND touched)"
_UNWRITTEN = text(load_sql(__name__, "lost"))


async def write(
    tx: Tx, caller: Caller, *, detail: Mapping[str, Any], models: Sequence[tuple[str, int]]
) -> dict[str, int]:
    """Execute the plan. `models`: the embedding models in use with their dimensions; their vectors are imported.
    `detail`: further details of the audit event.

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
    counts = {**outcomes, "rules": rules, "policies": policies}
    await access_log.log_chosen(tx, caller, AccessType.UPDATE, _REPLACED_IDS, {"operation": "import"})
    await audit_log.record_chosen(tx, caller, AuditAction.MEMORY_IMPORT, _WRITTEN_IDS, detail={**detail, **counts})
    return {**counts, "revisions": revisions, "history": history, "access_logs": access_logs, "vectors": vectors}


_REPLACED_IDS = "SELECT target AS id FROM restored WHERE fate = 'replace' AND touched"


async def unwritten_records(tx: Tx, most: int) -> list[tuple[str, str, str]]:
    """The records that were not written because they refer to something missing: kind, id in the archive, reason.

    `categories.restore` must have run: it marks the descriptions that were not written.
    """
    return [(row.kind, str(row.id), row.problem) for row in await tx.execute(_UNWRITTEN, {"most": most})]

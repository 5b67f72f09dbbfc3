"""The temporary tables that an archive is loaded into, and the checks of their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import text

from openmemory.access import restore as of_access
from openmemory.database.engine import Tx
from openmemory.memories.fields import COLUMNS, typed
from openmemory.memories.lifecycle import restore

TABLES: Mapping[str, str] = {
    **of_access.TABLES,
    "incoming_categories": """
        place integer, id uuid, name text, description text, created_at timestamptz, updated_at timestamptz,
        own text, own_created_at timestamptz, own_updated_at timestamptz""",
    "incoming_memories": f"place integer, {typed(COLUMNS)}, categories uuid[]",
    "incoming_assignments": "memory uuid, category uuid, automatic boolean",
    "incoming_history": """
        place integer, id uuid, memory uuid, app uuid, old_state memory_state, new_state memory_state,
        changed_at timestamptz, reason text""",
    "incoming_revisions": """
        place integer, memory uuid, revision integer, old_text text, new_text text, metadata jsonb, app uuid,
        changed_at timestamptz""",
    "incoming_accesses": """
        place integer, id uuid, memory uuid, app uuid, accessed_at timestamptz, access_type text, metadata jsonb""",
    "incoming_policies": restore.COLUMNS,
    "incoming_vectors": "id uuid, model text, text_hash text, vector bytea, dimension integer, chunking text",
    "incoming_refused": "kind text, place integer, id uuid",
}
"""The columns of each table, in copy order. `incoming_refused`: records that are skipped because of their content."""

_INDEXES = (
    "CREATE INDEX ON incoming_apps (id)", "CREATE INDEX ON incoming_categories (id)",
    "CREATE INDEX ON incoming_memories (id)", "CREATE INDEX ON incoming_refused (id)",
)  # fmt: skip
_LOST = text(
    " UNION ALL ".join(
        f"""
        (SELECT '{kind}' AS kind, {id_} AS id FROM {table} AS i
        WHERE NOT EXISTS (SELECT FROM incoming_memories AS m WHERE m.id = i.memory)
        AND NOT EXISTS (SELECT FROM incoming_refused AS r WHERE r.id = i.memory AND r.kind = 'memories')
        ORDER BY i.place LIMIT :most)
        """  # noqa: S608 - only constants are put in
        for kind, table, id_ in (
            ("history", "incoming_history", "i.id"),
            ("revision", "incoming_revisions", "i.memory"),
            ("access_log", "incoming_accesses", "i.id"),
        )
    )
)
# OpenMemory recorded a new memory as a transition from `deleted` to `active`.
_MEND_HISTORY = text(
    """
    UPDATE incoming_history AS h SET old_state = NULL
    FROM (SELECT DISTINCT ON (memory) id, memory FROM incoming_history ORDER BY memory, changed_at, place) AS first
    WHERE h.id = first.id AND h.memory = first.memory AND h.old_state = 'deleted' AND h.new_state = 'active'
    """
)


async def make(tx: Tx, more: Mapping[str, str]) -> None:
    """Create the tables, and those in `more`, for this transaction."""
    for name, columns in {**TABLES, **more}.items():
        await tx.execute(text(f"CREATE TEMPORARY TABLE {name} ({columns}) ON COMMIT DROP"))


async def prepare(tx: Tx, more: Iterable[str]) -> None:
    """Correct what OpenMemory wrote wrongly, and prepare the tables for joins."""
    for index in _INDEXES:
        await tx.execute(text(index))
    for table in (*TABLES, *more):
        await tx.execute(text(f"ANALYZE {table}"))
    # After ANALYZE: without statistics PostgreSQL would use a nested loop over all rows.
    await tx.execute(_MEND_HISTORY)


async def lost(tx: Tx, most: int) -> list[tuple[str, str]]:
    """The kinds and ids of records that belong to no memory of the archive and are therefore skipped."""
    return [(row.kind, str(row.id)) for row in await tx.execute(_LOST, {"most": most})]

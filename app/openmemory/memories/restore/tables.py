"""The temporary tables that an archive is loaded into, and the checks of their content."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import NamedTuple

from sqlalchemy import text

from openmemory.access import restore as of_access
from openmemory.database.engine import Tx
from openmemory.memories.lifecycle import restore


class ColumnKind(Enum):
    """The treatment of a memory's column by the import."""

    CONTENT = auto()
    """Copied. A change makes a new revision."""
    STAMP = auto()
    """Copied. A change makes no revision."""
    COMPUTED = auto()
    """Computed from the text when the archive is read, then copied."""
    OWN_RULE = auto()
    """Has a rule of its own in `planning` and `writing`."""


class ArchivedColumn(NamedTuple):
    """A column of `memories` that an import writes."""

    name: str
    type: str
    kind: ColumnKind


MEMORY_COLUMNS = (
    ArchivedColumn("id", "uuid", ColumnKind.OWN_RULE),
    ArchivedColumn("app_id", "uuid", ColumnKind.OWN_RULE),
    ArchivedColumn("content", "text", ColumnKind.CONTENT),
    ArchivedColumn("metadata", "jsonb", ColumnKind.CONTENT),
    ArchivedColumn("state", "memory_state", ColumnKind.OWN_RULE),
    ArchivedColumn("created_at", "timestamptz", ColumnKind.STAMP),
    ArchivedColumn("updated_at", "timestamptz", ColumnKind.STAMP),
    # It is now if the import archives a memory that is active in the archive.
    ArchivedColumn("archived_at", "timestamptz", ColumnKind.OWN_RULE),
    ArchivedColumn("deleted_at", "timestamptz", ColumnKind.STAMP),
    ArchivedColumn("namespace", "text", ColumnKind.CONTENT),
    ArchivedColumn("thread_id", "text", ColumnKind.CONTENT),
    ArchivedColumn("kind", "text", ColumnKind.CONTENT),
    ArchivedColumn("key", "text", ColumnKind.CONTENT),
    ArchivedColumn("importance", "double precision", ColumnKind.CONTENT),
    ArchivedColumn("expires_at", "timestamptz", ColumnKind.CONTENT),
    ArchivedColumn("valid_from", "timestamptz", ColumnKind.CONTENT),
    ArchivedColumn("valid_until", "timestamptz", ColumnKind.CONTENT),
    ArchivedColumn("superseded_by", "uuid", ColumnKind.OWN_RULE),
    ArchivedColumn("revision", "integer", ColumnKind.OWN_RULE),
    ArchivedColumn("hash", "text", ColumnKind.COMPUTED),
    ArchivedColumn("labels", "text[]", ColumnKind.COMPUTED),
)
"""The columns of a memory that an import writes, in the order in which `backup/records.py` fills them."""


def _names(*kinds: ColumnKind) -> tuple[str, ...]:
    return tuple(column.name for column in MEMORY_COLUMNS if column.kind in kinds)


CONTENT = _names(ColumnKind.CONTENT)
"""The content of a memory. If any of these columns changes, there is a new revision."""
STAMPS = _names(ColumnKind.STAMP)
"""The times of a memory that are copied."""
COPIED = _names(ColumnKind.CONTENT, ColumnKind.STAMP, ColumnKind.COMPUTED)
"""The columns that are copied as they are."""

TABLES: Mapping[str, str] = {
    **of_access.TABLES,
    "incoming_categories": """
        place integer, id uuid, name text, description text, created_at timestamptz, updated_at timestamptz,
        own text, own_created_at timestamptz, own_updated_at timestamptz""",
    "incoming_memories": ", ".join(
        ["place integer", *(f"{column.name} {column.type}" for column in MEMORY_COLUMNS), "categories uuid[]"]
    ),
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
_LOST = """
    SELECT '{kind}' AS kind, {id} AS id FROM {table} AS i
    WHERE NOT EXISTS (SELECT FROM incoming_memories AS m WHERE m.id = i.memory)
    AND NOT EXISTS (SELECT FROM incoming_refused AS r WHERE r.id = i.memory AND r.kind = 'memories')
    ORDER BY i.place LIMIT :most
"""
_HELD_BY_MEMORIES = {
    "history": ("incoming_history", "i.id"),
    "revision": ("incoming_revisions", "i.memory"),
    "access_log": ("incoming_accesses", "i.id"),
}
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


class OrphanRecords(NamedTuple):
    """Records of one kind that belong to no memory of the archive, with the ids of the first ones."""

    kind: str
    ids: list[str]


async def lost(tx: Tx, most: int) -> list[OrphanRecords]:
    """The records that belong to no memory of the archive and are therefore skipped."""
    found = []
    for kind, (table, id_) in _HELD_BY_MEMORIES.items():
        query = text(_LOST.format(kind=kind, table=table, id=id_))
        if rows := (await tx.execute(query, {"most": most})).all():
            found.append(OrphanRecords(kind, [str(row.id) for row in rows]))
    return found

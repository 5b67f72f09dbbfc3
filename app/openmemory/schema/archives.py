"""The lists of an archive: the fields of their records, their limits, and the queries that PostgreSQL makes JSON with.

Each query binds `user` and the selection: `app`, `from`, `to` (null: any) and `whole` (everything).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

from openmemory.capture.status import Status
from openmemory.memories import fields
from openmemory.memories.models import LAST_REVISION
from openmemory.schema.description import ArchiveColumn as Column
from openmemory.schema.description import ArchiveList
from openmemory.sources.models import PassageKind, SourceKind


def _selected(rows: str) -> str:
    """Returns the condition for the rows of a table that the selection takes."""
    return f"""
    {rows}.user_id = :user AND (CAST(:app AS uuid) IS NULL OR {rows}.app_id = :app)
    AND (CAST(:from AS timestamptz) IS NULL OR {rows}.created_at >= :from)
    AND (CAST(:to AS timestamptz) IS NULL OR {rows}.created_at <= :to)
"""


_WHICH, _SAID = _selected("m"), _selected("p")
_CHOSEN = f"SELECT m.id FROM memories AS m WHERE {_WHICH}"
# Without a filter: all of the user's apps, even those that no memory refers to. With a filter: only those that the
# selected memories refer to.
_APPS = f"""
    (:whole OR a.id IN (
        SELECT m.app_id FROM memories AS m WHERE {_WHICH}
        UNION SELECT p.app_id FROM passages AS p WHERE {_SAID}
        UNION SELECT app_id FROM memory_status_history WHERE memory_id IN ({_CHOSEN})
        UNION SELECT app_id FROM memory_revisions WHERE memory_id IN ({_CHOSEN})
        UNION SELECT app_id FROM memory_access_logs WHERE memory_id IN ({_CHOSEN})))
"""
# Data about the user as a whole is exported only with a complete export.
_POLICIES = "p.user_id = :user AND :whole"
_DESCRIPTIONS = "d.user_id = :user AND :whole"
_CAPTURES = "k.user_id = :user AND :whole"
_PROJECTS = "j.user_id = :user AND :whole"

_HIGHEST = 2**31 - 1
_REVISION = (1, LAST_REVISION)
"""The highest is our own maximum, so that we accept our own exports."""
_COUNT, _NUMBER = (0, _HIGHEST), (1, _HIGHEST)

_ID, _APP = Column("id", "uuid", ...), Column("app_id", "uuid")
_MEMORY, _USER = Column("memory_id", "uuid", ...), Column("user_id", "uuid", ..., loaded=False)
_CREATED, _UPDATED = Column("created_at", "timestamptz", "now"), Column("updated_at", "timestamptz", "created_at")
_CHANGED = Column("changed_at", "timestamptz", "now")
_METADATA = Column("metadata", "jsonb", checked="metadata")
_STATE = Column("state", "memory_state", "active", ("active", "deleted"))
_NAMESPACE = Column("namespace", "text", ..., checked="name")
_OF_MEMORY = ("memory_id", "memories", "its memory is not in the archive")


def _several(type_: str, *names: str, **how: Any) -> Iterator[Column]:
    return (Column(name, type_, **how) for name in names)


def _memory_columns() -> tuple[Column, ...]:
    """The columns of memories: first those of OpenMemory's archives in their order, then ours as `fields` has them.

    Texts are names, and JSON is metadata. The content and the metadata are checked as those of new memories.
    """
    columns = {
        one.name: Column(
            one.name, one.type, one.missing, _REVISION if one.name == "revision" else (),
            "" if one.name in ("content", "metadata") else _CHECKS.get(one.type, ""),
            None if one.archived is fields.Archived.COMPUTED else "",
        )
        for one in fields.COLUMNS
    }  # fmt: skip
    own = "ARRAY(SELECT c.category_id FROM memory_categories AS c WHERE c.memory_id = m.id ORDER BY 1)"
    columns |= {"user_id": _USER, "category_ids": Column("category_ids", "uuid[]", sql=own)}
    first = (
        "id", "user_id", "app_id", "content", "metadata", "state", "created_at", "updated_at", "archived_at",
        "deleted_at", "category_ids", "namespace", "thread_id",
    )  # fmt: skip
    return tuple(columns.pop(name) for name in first) + tuple(columns.values())


_CHECKS: dict[str, Literal["name", "metadata"]] = {"text": "name", "jsonb": "metadata"}

USER = ArchiveList(
    "user", "users", "u", "user", 1, "WHERE u.id = :user",
    (
        _ID, *_several("text", "user_id", "name", "email"), Column("metadata", "jsonb"),
        *_several("timestamptz", "created_at", "updated_at"),
    ),
)  # fmt: skip
"""The one record of `memories.json` that is in no list."""

APPS = ArchiveList(
    "apps", "apps", "a", "app", 10_000, f"WHERE a.owner_id = :user AND {_APPS} ORDER BY a.created_at, a.id",
    (
        _ID, Column("owner_id", "uuid", loaded=False), Column("name", "text", ..., checked="name"),
        Column("description", "text"), _METADATA, Column("is_active", "boolean", True), _CREATED, _UPDATED,
    ),
)  # fmt: skip

CATEGORIES = ArchiveList(
    "categories", "categories", "c", "category", 100_000,
    f"""LEFT JOIN category_descriptions AS d ON d.category_id = c.id AND {_DESCRIPTIONS}
        WHERE d.category_id IS NOT NULL
        OR c.id IN (SELECT category_id FROM memory_categories WHERE memory_id IN ({_CHOSEN}))
        OR c.id IN (SELECT object_id FROM access_controls WHERE user_id = :user AND object_type = 'category')
        OR c.id IN (SELECT criteria_id FROM archive_policies AS p WHERE {_POLICIES} AND criteria_type = 'category')
        ORDER BY c.name""",
    (
        _ID, Column("name", "text", ...), Column("description", "text"), _CREATED, _UPDATED,
        Column("own", "jsonb", loaded=False, sql="""CASE WHEN d.category_id IS NOT NULL THEN json_build_object(
            'description', d.description, 'created_at', d.created_at, 'updated_at', d.updated_at) END"""),
        Column("own_description", "text", sql=None),
        *_several("timestamptz", "own_created_at", "own_updated_at", sql=None),
    ),
)  # fmt: skip

MEMORIES = ArchiveList(
    "memories", "memories", "m", "memory", 2_000_000, f"WHERE {_WHICH} ORDER BY m.created_at, m.id", _memory_columns(),
    more=", m.id",
)  # fmt: skip

MEMORY_CATEGORIES = ArchiveList(
    "memory_categories", "memory_categories", "c", "category", 20_000_000,
    f"WHERE c.memory_id IN ({_CHOSEN}) ORDER BY c.memory_id, c.category_id",
    (_MEMORY, Column("category_id", "uuid", ...), Column("automatic", "boolean", False)),
    key=("memory_id", "category_id"), repeated="ignored",
)  # fmt: skip

STATUS_HISTORY = ArchiveList(
    "status_history", "memory_status_history", "h", "history", 20_000_000,
    f"WHERE h.memory_id IN ({_CHOSEN}) ORDER BY h.memory_id, h.changed_at, h.id",
    (
        _ID, _MEMORY, Column("changed_by", "uuid", loaded=False), Column("old_state", "memory_state"),
        Column("new_state", "memory_state", ...), _CHANGED, _APP, Column("reason", "text", allowed=("expired",)),
    ),
    parent=_OF_MEMORY,
)  # fmt: skip

ACCESS_CONTROLS = ArchiveList(
    "access_controls", "access_controls", "r", "rule", 100_000,
    f"""WHERE r.user_id = :user AND (r.object_type <> 'memory' OR r.object_id IN ({_CHOSEN}))
        AND (r.subject_id IS NULL OR EXISTS (SELECT FROM apps AS a WHERE a.id = r.subject_id AND {_APPS}))
        AND (r.object_type <> 'app' OR EXISTS (SELECT FROM apps AS a WHERE a.id = r.object_id AND {_APPS}))
        ORDER BY r.created_at, r.id""",
    (
        _ID, Column("subject_type", "text", "app", loaded=False), Column("subject_id", "uuid"),
        Column("object_type", "text", ...), Column("object_id", "uuid"),
        Column("effect", "text", ..., ("allow", "deny")), _CREATED, Column("object_name", "text"),
    ),
)  # fmt: skip

ARCHIVE_POLICIES = ArchiveList(
    "archive_policies", "archive_policies", "p", "policy", 10_000,
    f"""LEFT JOIN apps AS a ON p.criteria_type = 'app' AND a.id = p.criteria_id
        LEFT JOIN categories AS c ON p.criteria_type = 'category' AND c.id = p.criteria_id
        LEFT JOIN users AS u ON p.criteria_type = 'user' AND u.id = p.criteria_id
        WHERE {_POLICIES} AND (p.criteria_type <> 'app' OR a.id IS NOT NULL)
            AND (p.criteria_type <> 'category' OR c.id IS NOT NULL)
        ORDER BY p.created_at, p.id""",
    (
        _ID, Column("criteria_type", "text", ...), Column("criteria_id", "uuid"),
        Column("action", "text", "archive"), Column("days_to_archive", "integer", ...),
        _CREATED, Column("criteria_name", "text", sql="coalesce(p.criteria_name, a.name, c.name, u.user_id)"),
    ),
)  # fmt: skip

MEMORY_LINES = ArchiveList(
    "memories.jsonl.gz", "memories", "", "memory", 2_000_000,
    f"""SELECT CAST(json_build_object('id', m.id, 'content', m.content, 'metadata', m.metadata,
            'created_at', m.created_at, 'updated_at', m.updated_at, 'state', m.state, 'app', a.name,
            'categories', ARRAY(
                SELECT c.name FROM memory_categories AS f JOIN categories AS c ON c.id = f.category_id
                WHERE f.memory_id = m.id ORDER BY 1)) AS text)
        FROM memories AS m JOIN apps AS a ON a.id = m.app_id WHERE {_WHICH} ORDER BY m.created_at, m.id""",
)  # fmt: skip
"""The memories again, by the names of what they belong to, as OpenMemory writes them for other programs."""

REVISIONS = ArchiveList(
    "revisions.jsonl.gz", "memory_revisions", "r", "revision", 20_000_000,
    f"WHERE r.memory_id IN ({_CHOSEN}) ORDER BY r.memory_id, r.revision",
    (
        _MEMORY, Column("revision", "integer", ..., _REVISION), Column("old_text", "text"),
        Column("new_text", "text", ...), Column("metadata", "jsonb"), _APP, _CHANGED,
    ),
    key=("memory_id", "revision"), field="revision",
    parent=_OF_MEMORY,
)  # fmt: skip

ACCESS_LOGS = ArchiveList(
    "access_logs.jsonl.gz", "memory_access_logs", "l", "access_log", 20_000_000,
    f"WHERE l.memory_id IN ({_CHOSEN}) AND l.app_id IS NOT NULL ORDER BY l.accessed_at, l.id",
    (
        _ID, _MEMORY, _APP, Column("accessed_at", "timestamptz", "now"),
        Column("access_type", "text", ..., checked="name"), _METADATA,
    ),
    parent=_OF_MEMORY,
)  # fmt: skip

LINKS = ArchiveList(
    "links.jsonl.gz", "memory_links", "l", "link", 20_000_000,
    f"WHERE l.from_id IN ({_CHOSEN}) AND l.to_id IN ({_CHOSEN}) ORDER BY l.from_id, l.rel, l.to_id",
    (
        Column("from_id", "uuid", ...), Column("rel", "text", ..., checked="name"), Column("to_id", "uuid", ...),
        _APP, _CREATED,
    ),
    key=("from_id", "rel", "to_id"), field="link", repeated="refused soon",
)  # fmt: skip

PROJECTS = ArchiveList(
    "projects.jsonl.gz", "projects", "j", "project", 100_000,
    f"WHERE {_PROJECTS} ORDER BY j.namespace, j.created_at, j.id",
    (
        _NAMESPACE, *_several("text", "name", "root", "repo", "head", "branch"), _METADATA, _APP, _CREATED, _UPDATED,
    ),
    key=("namespace", "app_id"), field="namespace", repeated="refused soon",
)  # fmt: skip

ANCHORS = ArchiveList(
    "anchors.jsonl.gz", "anchors", "j", "anchor", 20_000_000,
    f"WHERE {_PROJECTS} ORDER BY j.namespace, j.head, j.commit",
    (
        _NAMESPACE, *_several("text", "head", "commit", missing=...), Column("reachable", "boolean", True),
        Column("checked_at", "timestamptz", "now"),
    ),
    key=("commit", "namespace", "head"), field="anchor", repeated="refused soon",
)  # fmt: skip

CAPTURES = ArchiveList(
    "captures.jsonl.gz", "captures", "k", "capture", 2_000_000,
    f"WHERE {_CAPTURES} ORDER BY k.created_at, k.id",
    (
        _ID, _APP, _CREATED, _UPDATED, Column("finished_at", "timestamptz"),
        # Captures that are being processed are exported as pending, because no worker holds them after an import.
        Column("status", "text", Status.PENDING, tuple(Status),
            sql="CASE k.status WHEN 'working' THEN 'pending' ELSE k.status END"),
        *_several("jsonb", "input", "options"),
        Column("namespaces", "text[]", sql="k.principal -> 'namespaces'", loaded=False),
        Column("scopes", "text[]", sql="k.principal -> 'scopes'", loaded=False),
        *_several("integer", "attempts", "bad_answers", missing=0, allowed=_COUNT), *_several("text", "error", "model"),
        *_several("integer", "calls", "prompt_tokens", "completion_tokens", missing=0, allowed=_COUNT),
        Column("seconds", "double precision"),
        *_several("text", "namespace", "hash", sql=None), Column("principal", "jsonb", sql=None),
    ),
)  # fmt: skip

STEPS = ArchiveList(
    "capture_steps.jsonl.gz", "captures", "", "capture", 20_000_000,
    f"""SELECT CAST(json_build_object('capture_id', k.id, 'number', s.number, s.kind, s.step) AS text)
        FROM captures AS k CROSS JOIN LATERAL (
            SELECT 'operation' AS kind, o.number, o.step
            FROM jsonb_array_elements(k.operations) WITH ORDINALITY AS o(step, number)
            UNION ALL SELECT 'refused', o.number, o.step
            FROM jsonb_array_elements(k.refused) WITH ORDINALITY AS o(step, number)
        ) AS s
        WHERE {_CAPTURES} ORDER BY k.created_at, k.id, s.kind, s.number""",
    (
        Column("capture_id", "uuid", ...), Column("number", "integer", ..., (1, 1_000)),
        *_several("uuid", "memory_id", "superseded_id", "superseded_by", sql=None),
        *_several("text", "kind", "problem", sql=None), Column("body", "jsonb", sql=None),
    ),
    key=("capture_id", "kind", "number"), field="number",
    parent=("capture_id", CAPTURES.name, f"is in capture_steps.jsonl.gz, but not in {CAPTURES.name}"),
)  # fmt: skip
"""The operations and refusals of captures."""

SOURCES = ArchiveList(
    "sources.jsonl.gz", "sources", "s", "source", 2_000_000,
    f"""WHERE s.user_id = :user AND (:whole OR s.id IN (SELECT p.source_id FROM passages AS p WHERE {_SAID}))
        ORDER BY s.created_at, s.id""",
    (
        _ID, _APP, Column("kind", "text", SourceKind.CONVERSATION, tuple(SourceKind)), _NAMESPACE,
        Column("locator", "text", ...), *_several("text", "language", "media_type", "hash", checked="name"),
        Column("bytes", "bigint", allowed=(0, 2**40)), *_several("text", "title", "summary"), _METADATA, _STATE,
        _CREATED, _UPDATED, *_several("timestamptz", "closed_at", "deleted_at"), Column("infer", "boolean", True),
        Column("captured", "integer", 0, _COUNT),
    ),
)  # fmt: skip

PASSAGES = ArchiveList(
    "passages.jsonl.gz", "passages", "p", "passage", 20_000_000,
    f"WHERE {_SAID} ORDER BY p.created_at, p.id",
    (
        _ID, Column("source_id", "uuid", ...), Column("kind", "text", PassageKind.TURN, tuple(PassageKind)),
        Column("position", "integer", ..., _NUMBER), Column("external_id", "text", checked="name"),
        Column("role", "text", sql="p.speaker"), Column("heading", "text"),
        *_several("integer", "first_line", "last_line", allowed=_NUMBER),
        Column("content", "text", ...), _METADATA, _STATE, _CREATED, Column("expires_at", "timestamptz"),
        *_several("text[]", "labels", "symbols", sql=None),
    ),
    parent=("source_id", SOURCES.name, f"its source is not in {SOURCES.name}"),
)  # fmt: skip

VECTORS = ArchiveList(
    "vectors.jsonl.gz", "embeddings", "", "vector", 4_000_000,
    f"""SELECT m.id, e.model, e.text_hash, e.vector, e.chunking
        FROM memories AS m JOIN embeddings AS e ON e.kind = 'memory' AND e.id = m.id AND e.text_hash = m.hash
        WHERE {_WHICH}
        UNION ALL SELECT p.id, e.model, e.text_hash, e.vector, e.chunking
        FROM passages AS p JOIN embeddings AS e ON e.kind = 'passage' AND e.id = p.id AND e.text_hash = p.hash
        WHERE {_SAID}""",
    (
        _ID, *_several("text", "model", "text_hash", missing=...), Column("vector", "bytea", ...),
        Column("chunking", "text", ""), Column("dimension", "integer", sql=None),
    ),
    key=("id", "model"), repeated="ignored",
)  # fmt: skip
"""The one member whose JSON Python writes."""


SECTIONS = {
    one.name: one
    for one in (APPS, CATEGORIES, MEMORIES, MEMORY_CATEGORIES, STATUS_HISTORY, ACCESS_CONTROLS, ARCHIVE_POLICIES)
}
"""The lists of `memories.json` by name, in order."""

MEMBERS = {
    one.name: one
    for one in (
        MEMORY_LINES, REVISIONS, ACCESS_LOGS, LINKS, PROJECTS, ANCHORS, CAPTURES, STEPS, SOURCES, PASSAGES, VECTORS,
    )
}  # fmt: skip
"""The members of lines by name, in order. None is required."""

LISTS = SECTIONS | MEMBERS

"""Rejects archives in which two records of a kind have the same key."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.backup.format import ACCESSES, CAPTURES, PASSAGES, REVISIONS, SOURCES, STEPS, malformed
from openmemory.backup.sections import LINES
from openmemory.database.engine import Tx

_IDS = {
    "apps": "incoming_apps", "categories": "incoming_categories", "memories": "incoming_memories",
    "status_history": "incoming_history", "access_controls": "incoming_rules",
    "archive_policies": "incoming_policies", ACCESSES: "incoming_accesses", CAPTURES: "incoming_captures",
    SOURCES: "incoming_sources", PASSAGES: "incoming_passages",
}  # fmt: skip
_NUMBERED = {
    REVISIONS: ("incoming_revisions", "memory, revision", "revision"),
    STEPS: ("incoming_steps", "capture, kind, turn", "number"),
}
"""The table, the key, and the field that messages name."""
_TWICE = """
    SELECT min(place) AS first, max(place) AS second FROM {records} AS every
    GROUP BY {key} HAVING count(*) > 1 ORDER BY 1 LIMIT 1
"""
_WITH_REFUSED = """
    (SELECT id, place FROM {table} UNION ALL SELECT id, place FROM incoming_refused WHERE kind = '{kind}')
"""


async def reject(tx: Tx) -> None:
    """Looks for records with the same key in the temporary tables.

    Raises:
        BadArchive: there are two; the message names both places.
    """
    checks = {kind: (_WITH_REFUSED.format(table=table, kind=kind), "id", "id") for kind, table in _IDS.items()}
    for kind, (records, key, field) in {**checks, **_NUMBERED}.items():
        if found := (await tx.execute(text(_TWICE.format(records=records, key=key)))).one_or_none():
            place = "{}, line {}" if kind in LINES else "{}[{}]"
            first, second = (place.format(kind, number) for number in found)
            raise malformed(f"{second}.{field}", f"must be unique; {first} has the same")

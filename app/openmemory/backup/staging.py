"""The temporary tables that an archive is loaded into, and the checks of their content. `ArchiveList.loaded` has their
columns."""

from __future__ import annotations

from sqlalchemy import text

from openmemory.backup.format import malformed
from openmemory.database.engine import Tx
from openmemory.schema.archives import LISTS, MEMBERS
from openmemory.schema.description import ArchiveList

REFUSED = "incoming_refused"
"""The table of the records that are left out because of their content."""

TABLES: dict[str, tuple[tuple[str, str], ...]] = {
    **{one.staging: one.loaded for one in LISTS.values() if one.columns},
    REFUSED: (("kind", "text"), ("place", "integer"), ("id", "uuid")),
}
"""The columns of each table with their types, in the order in which they are copied."""

_INDEXED = ("incoming_apps", "incoming_categories", "incoming_memories", REFUSED)
# OpenMemory recorded a new memory as a transition from `deleted` to `active`.
_MEND_HISTORY = text(
    """
    UPDATE incoming_status_history AS h SET old_state = NULL
    FROM (
        SELECT DISTINCT ON (memory_id) id, memory_id FROM incoming_status_history
        ORDER BY memory_id, changed_at, place
    ) AS first
    WHERE h.id = first.id AND h.memory_id = first.memory_id AND h.old_state = 'deleted' AND h.new_state = 'active'
    """
)
_TWICE = """
    SELECT min(place) AS first, max(place) AS second FROM {records} AS every
    GROUP BY {key} HAVING count(*) > 1 ORDER BY 1 LIMIT 1
"""
_WITH_REFUSED = """
    (SELECT id, place FROM {table} UNION ALL SELECT id, place FROM incoming_refused WHERE kind = '{kind}')
"""


def _orphans(of: ArchiveList) -> str:
    """The records of a list whose parent is not in the archive."""
    assert of.parent is not None
    column, parent, problem = of.parent
    return f"""
        (SELECT '{of.item}' AS item, i.{of.key[0]} AS id, '{problem}' AS problem FROM {of.staging} AS i
        WHERE NOT EXISTS (SELECT FROM {LISTS[parent].staging} AS p WHERE p.id = i.{column})
        AND NOT EXISTS (SELECT FROM {REFUSED} AS r WHERE r.id = i.{column} AND r.kind = '{parent}')
        GROUP BY i.{of.key[0]} ORDER BY min(i.place) LIMIT :most)
    """  # noqa: S608 - only constants are put in


_ORPHANS = text(" UNION ALL ".join(_orphans(one) for one in LISTS.values() if one.parent))


async def make(tx: Tx) -> None:
    """Create the tables for this transaction."""
    for name, columns in TABLES.items():
        definitions = ", ".join(f"{column} {type_}" for column, type_ in columns)
        await tx.execute(text(f"CREATE TEMPORARY TABLE {name} ({definitions}) ON COMMIT DROP"))


async def prepare(tx: Tx) -> None:
    """Correct what OpenMemory wrote wrongly, and prepare the tables for joins."""
    for table in _INDEXED:
        await tx.execute(text(f"CREATE INDEX ON {table} (id)"))
    for table in TABLES:
        await tx.execute(text(f"ANALYZE {table}"))
    # After ANALYZE: without statistics PostgreSQL would use a nested loop over all rows.
    await tx.execute(_MEND_HISTORY)


async def reject_duplicates(tx: Tx) -> None:
    """Require that no two records have the same key.

    Raises:
        BadArchive: there are two; the message names both places.
    """
    for kind, of in LISTS.items():
        if not of.columns or of.repeated != "refused":
            continue
        records = _WITH_REFUSED.format(table=of.staging, kind=kind) if of.key == ("id",) else of.staging
        query = text(_TWICE.format(records=records, key=", ".join(of.key)))
        if row := (await tx.execute(query)).one_or_none():
            place = "{}, line {}" if kind in MEMBERS else "{}[{}]"
            first, second = (place.format(kind, number) for number in row)
            raise malformed(f"{second}.{of.field}", f"must be unique; {first} has the same")


async def orphans(tx: Tx, most: int) -> list[tuple[str, str, str]]:
    """The items, ids and problems of records that belong to nothing in the archive and are therefore skipped."""
    return [(row.item, str(row.id), row.problem) for row in await tx.execute(_ORPHANS, {"most": most})]

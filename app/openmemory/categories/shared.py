"""Creates the categories of an archive before anything else of it is written.

All users share the categories. An uncommitted category of an import would block everyone who uses the same name until
the whole archive is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from sqlalchemy import text

from openmemory.database.engine import Database, Tx

_TOGETHER = 500

# In the same order as every other transaction that creates categories, to prevent deadlocks.
_NEW = text(
    """
    SELECT i.id, i.name, i.description, i.created_at, i.updated_at
    FROM (SELECT DISTINCT ON (name) * FROM incoming_categories ORDER BY name, place) AS i
    WHERE i.name COLLATE "C" > :after AND NOT EXISTS (SELECT FROM categories AS c WHERE c.name = i.name)
    ORDER BY i.name COLLATE "C" LIMIT :some
    """
)
_ADD = """
    INSERT INTO categories (id, name, description, created_at, updated_at)
    SELECT {id}, i.name, i.description, i.created_at, i.updated_at
    FROM unnest(CAST(:ids AS uuid[]), CAST(:names AS text[]), CAST(:descriptions AS text[]),
        CAST(:created AS timestamptz[]), CAST(:updated AS timestamptz[]))
        AS i(id, name, description, created_at, updated_at)
    WHERE NOT EXISTS (SELECT FROM categories AS c WHERE c.name = i.name)
    ORDER BY i.name COLLATE "C" ON CONFLICT DO NOTHING
"""
# With its id from the archive if that is free, else with a new one.
_ADDS = (text(_ADD.format(id="i.id")), text(_ADD.format(id="gen_random_uuid()")))


async def make(tx: Tx, database: Database | None) -> int:
    """Create the new categories in batches, each in its own transaction; all in `tx` without a database. Returns their
    number.

    `tx` holds the loaded archive. If the import fails later, the categories stay, like those whose memories are erased.
    """
    count, after = 0, ""
    while rows := (await tx.execute(_NEW, {"after": after, "some": _TOGETHER})).all():
        after = rows[-1].name
        for add in _ADDS:
            async with nullcontext(tx) if database is None else database.statement() as own:
                count += (await own.execute(add, _columns(rows))).rowcount
    return count


def _columns(rows: Sequence[Any]) -> dict[str, list[Any]]:
    names = {"ids": "id", "names": "name", "descriptions": "description", "created": "created_at",
             "updated": "updated_at"}  # fmt: skip
    return {key: [getattr(row, name) for row in rows] for key, name in names.items()}

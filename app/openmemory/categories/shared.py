"""The categories of an archive, made before anything else of it is written.

All users share them: one that an import has made and not committed would hold up everybody who files under the same
name until the whole archive is in.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import text

from openmemory.database.engine import Database, Tx

_TOGETHER = 500

# In the order in which others make categories: two that wait for each other would wait in vain.
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
# With the id that it had if that is free, else with another one.
_ADDS = (text(_ADD.format(id="i.id")), text(_ADD.format(id="gen_random_uuid()")))


async def make(tx: Tx, database: Database) -> int:
    """Make those that are new, some at a time, each time in a transaction of their own; returns how many there were.

    `tx` has what came in. If the import fails after this, they stay, as those do whose memories are all erased.
    """
    made, after = 0, ""
    while found := (await tx.execute(_NEW, {"after": after, "some": _TOGETHER})).all():
        after = found[-1].name
        for add in _ADDS:
            async with database.statement() as own:
                made += (await own.execute(add, _columns(found))).rowcount
    return made


def _columns(found: Sequence[Any]) -> dict[str, list[Any]]:
    names = {"ids": "id", "names": "name", "descriptions": "description", "created": "created_at",
             "updated": "updated_at"}  # fmt: skip
    return {key: [getattr(row, name) for row in found] for key, name in names.items()}

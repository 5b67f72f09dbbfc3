"""The registry says of every table what PostgreSQL says of it, and of every list what other formats say of it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import fields
from pkgutil import resolve_name

import pytest
from sqlalchemy import text

from openmemory.importers import staging
from openmemory.projects.bundle_format import Bundle
from openmemory.schema.archives import LISTS, USER
from openmemory.schema.description import ArchiveList
from openmemory.schema.registry import TABLES
from openmemory.services import Services

ARCHIVED = {name for name, table in TABLES.items() if not table.unarchived}

_COLUMNS = text(
    """
    SELECT c.relname AS table, a.attname AS name, format_type(a.atttypid, a.atttypmod) AS type
    FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
    WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind IN ('r', 'p') ORDER BY 1, 2
    """
)
_CASCADES = text(
    """
    SELECT conrelid::regclass::text AS table, confrelid::regclass::text AS other FROM pg_constraint
    WHERE contype = 'f' AND confdeltype = 'c' AND connamespace = current_schema()::regnamespace
    """
)
_SPELLED = {"timestamp with time zone": "timestamptz", "character varying": "text"}


@pytest.fixture
async def columns(services: Services) -> dict[str, dict[str, str]]:
    """The columns of the tables of the database, with their types."""
    found = defaultdict[str, dict[str, str]](dict)
    async with services.database.statement() as tx:
        for row in await tx.execute(_COLUMNS):
            found[row.table][row.name] = _SPELLED.get(row.type, row.type)
    return found


def queries() -> Iterator[tuple[ArchiveList, str]]:
    """The lists, and what their queries do before they choose rows."""
    for one in (USER, *LISTS.values()):
        chosen = one.rows.partition("WHERE")[2]
        yield one, one.query.removesuffix(chosen)


def exported() -> dict[str, set[str]]:
    """The columns that an export reads of each table."""
    found = defaultdict[str, set[str]](set)
    for _, query in queries():
        for table, alias in re.findall(r"(?:FROM|JOIN) (\w+) AS (\w+)", query):
            found[table] |= set(re.findall(rf"\b{alias}\.(\w+)", query))
    return found


def omitted(table: str) -> set[str]:
    """The columns that no archive holds."""
    return {name for names in TABLES[table].omitted.values() for name in names.split()}


async def test_every_table_is_registered(columns: dict[str, dict[str, str]]) -> None:
    unknown = sorted(set(columns) - set(TABLES))
    assert not unknown, (
        f"Add {', '.join(unknown)} to openmemory/schema/registry.py: how a user's rows are erased, and why archives,"
        " bundles and imports do not hold it. If archives hold it, add a list to openmemory/schema/archives.py."
    )
    assert set(TABLES) <= set(columns), "It registers tables that are not there."


async def test_every_column_is_archived_or_has_a_reason(columns: dict[str, dict[str, str]]) -> None:
    held = exported()
    for one in LISTS.values():
        held[one.table] |= {name for name, _ in one.loaded}
    lost = [
        f"{table}.{column}"
        for table in sorted(ARCHIVED)
        for column in sorted(columns[table].keys() - held[table] - omitted(table))
    ]
    assert not lost, (
        f"Add {', '.join(lost)} to the list of the table in openmemory/schema/archives.py (of memories:"
        " openmemory/memories/fields.py), or with a reason to `omitted` in openmemory/schema/registry.py."
    )
    wrong = {f"{table}.{name}" for table in TABLES for name in omitted(table) - (columns[table].keys() - held[table])}
    assert not wrong, f"They are no columns, or archives hold them: {wrong}"


def test_a_table_is_in_archives_or_has_a_reason() -> None:
    assert {one.table for one, _ in queries()} | {"category_descriptions"} == ARCHIVED
    assert exported()["category_descriptions"] == {"category_id", "user_id", "description", "created_at", "updated_at"}


async def test_columns_are_loaded_as_what_they_are(columns: dict[str, dict[str, str]]) -> None:
    different = {
        (one.name, column.name): (column.type, columns[one.table][column.name])
        for one, _ in queries()
        for column in one.columns
        if column.sql == "" and one.alias and columns[one.table][column.name] != column.type
    }
    assert different == {}


def test_the_key_and_the_parent_of_a_list_are_columns_of_it() -> None:
    for one in LISTS.values():
        names = {name for name, _ in one.loaded}
        assert not one.columns or set(one.key) <= names, one.name
        assert one.parent is None or (one.parent[0] in names and one.parent[1] in LISTS), one.name


async def test_what_is_erased_with_others_refers_to_them(services: Services) -> None:
    cascades = defaultdict[str, set[str]](set)
    async with services.database.statement() as tx:
        for row in await tx.execute(_CASCADES):
            cascades[row.other].add(row.table)

    def erased_with(table: str) -> set[str]:
        found, pending = set[str](), [table]
        while pending:
            new = cascades[pending.pop()] - found
            found |= new
            pending.extend(new)
        return found

    for root in ("users", "memories", "embeddings"):
        stays = {name for name, table in TABLES.items() if table.erased == root} - erased_with(root)
        assert not stays, f"They are erased with {root}, but no foreign key that cascades leads there: {stays}"
    also = {name for name, table in TABLES.items() if table.erased in ("statement", "kept")} & erased_with("users")
    assert not also, f"They are erased with users: {also}"


def test_what_is_not_erased_with_others_has_a_statement_or_a_reason() -> None:
    for table in TABLES.values():
        assert bool(table.erasure) == (table.erased in ("statement", "kept")), table.name
        if table.erased == "statement":
            for name in re.findall(r"\w+(?:\.\w+)+", table.erasure):
                resolve_name(f"openmemory.{name}")


def test_bundles_hold_what_has_no_reason_against_it() -> None:
    shared = {name for name in ARCHIVED if not TABLES[name].unbundled}
    lists = {one.staging.removeprefix("incoming_") for one in LISTS.values() if one.table in shared}
    # The state of a project is a memory.
    assert lists == {one.name for one in fields(Bundle)} - {"manifest", "state"}


def test_imports_hold_what_has_no_reason_against_it() -> None:
    assert {name for name in ARCHIVED if not TABLES[name].unimported} == set(staging.TABLES)

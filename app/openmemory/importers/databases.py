"""The tables of another program, which are only read, whatever database contains them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from openmemory.importers.source import BadSource

Show = Callable[[int, int | None], None]
"""Called with the number of rows read, and their total."""

_SHOW_EVERY = 1_000


class ForeignDatabase(Protocol):
    """A database of another program."""

    @property
    def columns(self) -> Mapping[str, Collection[str]]:
        """The columns of each table."""
        ...

    def rows(self, table: str, columns: Sequence[str], order: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """The rows of a table, one at a time, by these columns of it."""
        ...

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        ...


def must_have(database: ForeignDatabase, program: str, tables: Mapping[str, Sequence[str]]) -> None:
    """Refuses a database that lacks one of the tables, or one of these columns of it.

    Raises:
        BadSource: something is missing; the message names it.
    """
    missing_tables = [name for name in tables if name not in database.columns]
    missing_columns = [
        f"{name}.{column}"
        for name, columns in tables.items()
        for column in columns
        if name not in missing_tables and column not in database.columns[name]
    ]
    missing = [
        f"{sort} {', '.join(names)}"
        for sort, names in (("table", missing_tables), ("column", missing_columns))
        if names
    ]
    if missing:
        raise BadSource(f"must be a database of {program}; it has no {' and no '.join(missing)}")


def read(
    database: ForeignDatabase,
    tables: Mapping[str, Collection[str]],
    show: Show,
    *,
    order: Mapping[str, Sequence[str]] | None = None,
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of those tables that are there, one after the other, by those of the columns that are there.

    An older version of a program has fewer of both. `order`: the columns by which the rows of a table are sorted.
    """
    present = [name for name in tables if name in database.columns]
    total = sum(map(database.count, present))
    row_count = 0
    for table in present:
        columns = [name for name in tables[table] if name in database.columns[table]]
        by = [name for name in (order or {}).get(table, ()) if name in database.columns[table]]
        for row in database.rows(table, columns, by):
            yield table, row
            row_count += 1
            if row_count % _SHOW_EVERY == 0:
                show(row_count, total)
    show(total, total)


def skipped_table_notes(database: ForeignDatabase, reasons: Mapping[str, str]) -> list[str]:
    """A sentence for each of these tables that has rows. `reasons`: why its rows are not imported."""
    counts = {table: database.count(table) for table in reasons if table in database.columns}
    return [f"Not imported: {count:,} rows of {table}, {reasons[table]}." for table, count in counts.items() if count]

"""Reads files of SQLite, such as the `openmemory.db` of an old installation. Nothing is changed, not even by reading:
SQLite would write next to a file that was left in use, so a copy is read in that case."""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

from openmemory.importers import installation
from openmemory.importers.databases import Show
from openmemory.importers.left_out import printable_id
from openmemory.importers.source import MAX_ROW_BYTES, BadSource, ReadingLimit
from openmemory.importers.staging import Staging

_SIDE_FILES = ("-wal", "-journal")
"""Suffixes of the files that hold recent writes that are not in the database file yet."""

_PLAIN = ("CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX ")
"""The beginnings of what SQLite stores for tables and indexes."""
_ALLOWED = {
    sqlite3.SQLITE_SELECT: (None,), sqlite3.SQLITE_READ: None, sqlite3.SQLITE_FUNCTION: ("count",),
    sqlite3.SQLITE_PRAGMA: ("quick_check", "table_info"),
}  # fmt: skip
"""The actions that reading needs, and the names that they may have; None: any."""
_LOOK_EVERY = 1_000
"""Steps of SQLite between two checks of the limit."""


def stage(
    path: Path,
    staging: Staging,
    folder: Path,
    show: Show,
    limit: ReadingLimit | None = None,
) -> None:
    """Stages all users with all of their data. `folder` is for a copy of the database, if one is needed.

    Raises:
        BadSource: the file is not a database of OpenMemory, is damaged, or exceeds the limit.
    """
    with opened(path, folder, limit) as tables:
        # Rows without a time get the time of the file, which is the same in every run.
        staging.unknown = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        installation.stage(tables, staging, show)


class SqliteTables:
    """The tables of a file of SQLite."""

    def __init__(self, connection: sqlite3.Connection, tables: Iterable[str]) -> None:
        self._connection = connection
        self.columns = {
            name: {row["name"] for row in connection.execute(f"PRAGMA table_info({_quote(name)})")} for name in tables
        }

    def rows(self, table: str, columns: Sequence[str], order: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
        """The rows of a table, by these columns."""
        by = f" ORDER BY {', '.join(order)}" if order else ""
        for row in self._connection.execute(f"SELECT {', '.join(columns)} FROM {table}{by}"):  # noqa: S608
            yield dict(zip(columns, row, strict=True))

    def count(self, table: str) -> int:
        """The number of rows of a table."""
        return int(self._connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])  # noqa: S608


@contextmanager
def opened(
    path: Path, folder: Path, limit: ReadingLimit | None = None, *, searched: Collection[str] | None = None
) -> Iterator[SqliteTables]:
    """Opens a file of SQLite, which is only read. `folder` is for a copy, if one is needed.

    `searched`: the tables that are read of a program whose file also has triggers and virtual tables; None: it must
    have none.

    Raises:
        BadSource: it is damaged, cannot be read, or exceeds the limit.
    """
    try:
        with _connection(path, folder, limit) as connection:
            tables = _tables(connection, strict=searched is None)
            for check in ("1",) if searched is None else [_quote(name) for name in searched if name in tables]:
                damage = connection.execute(f"PRAGMA quick_check({check})").fetchone()[0]
                if damage != "ok":
                    hint = f'try `sqlite3 {path.name} ".recover" | sqlite3 mended.db`'
                    raise BadSource(f"is damaged: {damage}", hint=hint)
            yield SqliteTables(connection, tables)
    except (sqlite3.DatabaseError, OSError) as error:
        if limit is not None:
            limit.check()
        raise BadSource(f"cannot be read: {error}") from error


def _tables(old: sqlite3.Connection, *, strict: bool) -> list[str]:
    """The names of the tables. A view, a trigger or a virtual table would run code of the file: it is left out, or
    refused if the reading is `strict`."""
    names = []
    for kind, name, sql in old.execute("SELECT type, name, sql FROM sqlite_master"):
        if sql is not None and not str(sql).startswith(_PLAIN):
            if not strict:
                continue
            raise BadSource(
                f"has a view, a trigger or a virtual table ({printable_id(name)}), which OpenMemory never made",
                hint="remove it from a copy of the file with `sqlite3`",
            )
        if kind == "table":
            names.append(name)
    return names


def _quote(name: str) -> str:
    return '"{}"'.format(name.replace('"', '""'))


@contextmanager
def _connection(path: Path, folder: Path, limit: ReadingLimit | None) -> Iterator[sqlite3.Connection]:
    copy: Path | None = None
    side_files = [Path(f"{path}{end}") for end in _SIDE_FILES]
    if any(file.exists() and file.stat().st_size for file in side_files):
        # Recent writes are in a separate file, and reading them would write to it. So a copy is read.
        copy = Path(tempfile.mkdtemp(dir=folder)) / "copy.sqlite"
        for source, end in ((path, ""), *zip(side_files, _SIDE_FILES, strict=True)):
            if source.exists():
                shutil.copyfile(source, f"{copy}{end}")
        address = f"file:{quote(str(copy))}"
    else:
        address = f"file:{quote(str(path.absolute()))}?mode=ro&immutable=1"
    connection = sqlite3.connect(address, uri=True)
    connection.row_factory = sqlite3.Row
    # Invalid UTF-8 in one value must not end the import.
    connection.text_factory = lambda raw: raw.decode("utf-8", "replace")
    # The schema is the file's: it must reach nothing but its own tables, and take no more than a record may have.
    connection.executescript("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0;")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
    connection.setlimit(sqlite3.SQLITE_LIMIT_ATTACHED, 0)
    connection.set_authorizer(_authorize)
    if limit is not None:
        connection.set_progress_handler(limit.over, _LOOK_EVERY)
    try:
        yield connection
    finally:
        connection.close()
        if copy is not None:
            shutil.rmtree(copy.parent)


def _authorize(action: int, first: str | None, second: str | None, _database: str | None, within: str | None) -> int:
    """Allows reading tables, and nothing within a view or a trigger."""
    if within is not None or action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    names = _ALLOWED[action]
    name = second if action == sqlite3.SQLITE_FUNCTION else first
    return sqlite3.SQLITE_OK if names is None or name in names else sqlite3.SQLITE_DENY

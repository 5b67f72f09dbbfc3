"""Reads the database of an old installation, `openmemory.db`, as SQLAlchemy wrote it. Nothing is changed, not even by
reading: SQLite would write next to a file that was left in use, so a copy is read in that case."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import quote

from openmemory.importers.left_out import shown
from openmemory.importers.source import MAX_ROW_BYTES, BadSource, ReadingLimit
from openmemory.importers.staging import TABLES, Staging

_NEEDED = ("users", "apps", "memories")
_BESIDE = ("-wal", "-journal")
"""Suffixes of the files that hold recent writes that are not in the database file yet."""

_PLAIN = ("CREATE TABLE ", "CREATE INDEX ", "CREATE UNIQUE INDEX ")
"""The beginnings of what SQLite stores for tables and indexes."""
_ALLOWED = {
    sqlite3.SQLITE_SELECT: (None,), sqlite3.SQLITE_READ: None, sqlite3.SQLITE_FUNCTION: ("count",),
    sqlite3.SQLITE_PRAGMA: ("quick_check", "table_info"),
}  # fmt: skip
"""The actions that reading needs, and the names that they may have; None: any."""
_LOOK_EVERY = 1_000
"""Steps of SQLite between two looks at the limit."""


def stage(
    path: Path,
    staging: Staging,
    folder: Path,
    show: Callable[[int, int | None], None],
    limit: ReadingLimit | None = None,
) -> None:
    """Stages all users with all of their data. `folder` is for a copy of the database, if one is needed.

    Raises:
        BadSource: the file is not a database of OpenMemory, is damaged, or exceeds the limit.
    """
    try:
        # Rows without a time get the time of the file, which is the same in every run.
        staging.unknown = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        with _opened(path, folder, limit) as old:
            _take(old, staging, show)
    except (sqlite3.DatabaseError, OSError) as error:
        if limit is not None:
            limit.check()
        raise BadSource(f"cannot be read: {error}") from error


def _take(old: sqlite3.Connection, staging: Staging, show: Callable[[int, int | None], None]) -> None:
    tables = _tables(old)
    damage = old.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise BadSource(f"is damaged: {damage}", hint='try `sqlite3 openmemory.db ".recover" | sqlite3 mended.db`')
    if missing := [name for name in _NEEDED if name not in tables]:
        raise BadSource(f"must be a database of OpenMemory; it has no table {', '.join(missing)}")
    present = [name for name in TABLES if name in tables]
    total = sum(old.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in present)  # noqa: S608
    done = 0
    for table in present:
        columns = {row["name"] for row in old.execute(f"PRAGMA table_info({table})")}
        wanted = [name for name in TABLES[table] if name in columns]
        for row in old.execute(f"SELECT {', '.join(wanted)} FROM {table}"):  # noqa: S608
            staging.add(table, dict(zip(wanted, row, strict=True)))
            done += 1
            if done % 1_000 == 0:
                show(done, total)
    show(total, total)
    if "configs" in tables and old.execute("SELECT count(*) FROM configs").fetchone()[0]:
        staging.general_notes.append(
            "The configuration is not imported, because it may contain keys; `openmemory config` shows the current one."
        )


def _tables(old: sqlite3.Connection) -> set[str]:
    """The names of the tables. A view, a trigger or a virtual table would run code of the file, and is refused."""
    names = set()
    for kind, name, sql in old.execute("SELECT type, name, sql FROM sqlite_master"):
        if sql is not None and not str(sql).startswith(_PLAIN):
            raise BadSource(
                f"has a view, a trigger or a virtual table ({shown(name)}), which OpenMemory never made",
                hint="remove it from a copy of the file with `sqlite3`",
            )
        if kind == "table":
            names.add(name)
    return names


@contextmanager
def _opened(path: Path, folder: Path, limit: ReadingLimit | None) -> Iterator[sqlite3.Connection]:
    beside = [Path(f"{path}{end}") for end in _BESIDE]
    if any(file.exists() and file.stat().st_size for file in beside):
        # Recent writes are in a separate file, and reading them would write to it. So a copy is read.
        copy = folder / "copy.sqlite"
        for source, end in ((path, ""), *zip(beside, _BESIDE, strict=True)):
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
    connection.set_authorizer(_allowed)
    if limit is not None:
        connection.set_progress_handler(limit.over, _LOOK_EVERY)
    try:
        yield connection
    finally:
        connection.close()


def _allowed(action: int, first: str | None, second: str | None, _database: str | None, within: str | None) -> int:
    """Allows reading tables, and nothing within a view or a trigger."""
    if within is not None or action not in _ALLOWED:
        return sqlite3.SQLITE_DENY
    names = _ALLOWED[action]
    name = second if action == sqlite3.SQLITE_FUNCTION else first
    return sqlite3.SQLITE_OK if names is None or name in names else sqlite3.SQLITE_DENY

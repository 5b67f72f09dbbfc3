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

from openmemory.errors import SetupError
from openmemory.importers.staging import TABLES, Staging

_MAGIC = b"SQLite format 3\x00"
_NEEDED = ("users", "apps", "memories")
_BESIDE = ("-wal", "-journal")
"""Suffixes of the files that hold recent writes that are not in the database file yet."""


def is_sqlite(path: Path) -> bool:
    """Returns True if a file is a SQLite database."""
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def stage(path: Path, staging: Staging, folder: Path, show: Callable[[int, int | None], None]) -> None:
    """Stages all users with all of their data. `folder` is for a copy of the database, if one is needed.

    Raises:
        SetupError: the file is not a database of OpenMemory, or is damaged.
    """
    try:
        # Rows without a time get the time of the file, which is the same in every run.
        staging.unknown = datetime.fromtimestamp(path.stat().st_mtime, UTC).isoformat()
        with _opened(path, folder) as old:
            _take(old, staging, show)
    except (sqlite3.DatabaseError, OSError) as error:
        raise SetupError(f"{path}: cannot be read: {error}") from error


def _take(old: sqlite3.Connection, staging: Staging, show: Callable[[int, int | None], None]) -> None:
    damage = old.execute("PRAGMA quick_check(1)").fetchone()[0]
    if damage != "ok":
        raise SetupError(
            f"the database is damaged: {damage}", hint='try `sqlite3 openmemory.db ".recover" | sqlite3 mended.db`'
        )
    tables = {row[0] for row in old.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if missing := [name for name in _NEEDED if name not in tables]:
        raise SetupError(f"the file must be a database of OpenMemory; it has no table {', '.join(missing)}")
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


@contextmanager
def _opened(path: Path, folder: Path) -> Iterator[sqlite3.Connection]:
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
    try:
        yield connection
    finally:
        connection.close()

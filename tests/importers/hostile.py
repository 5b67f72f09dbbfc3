"""Files that must be refused, by name: what makes their bytes, and a part of the refusal."""

from __future__ import annotations

import io
import json
import os
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from tests.doors.cli.installation import Installation

Make = Callable[[Path, str], bytes]


def _database(*statements: str) -> Make:
    """A database of one user, changed by these statements."""

    def make(path: Path, user: str) -> bytes:
        old = Installation(path)
        of = old.user(user)
        old.memory(of, old.app(of, "claude"), "a text")
        old.connection.close()
        with closing(sqlite3.connect(path)) as connection:
            for statement in statements:
                connection.execute(statement)
            connection.commit()
        return path.read_bytes()

    return make


def _changed(change: Callable[[bytes], bytes]) -> Make:
    """A database of one user, whose bytes were changed."""
    return lambda path, user: change(_database()(path, user))


def _bytes(content: bytes) -> Make:
    return lambda _path, _user: content


def _zip(tables: bytes) -> Make:
    def make(_path: Path, _user: str) -> bytes:
        file = io.BytesIO()
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as zipped:
            zipped.writestr("memories.json", tables)
        return file.getvalue()

    return make


_ENDLESS = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r) SELECT n AS id FROM r"
_CODE = "file: has a view, a trigger or a virtual table"

HOSTILE: dict[str, tuple[Make, str]] = {
    "endless view": (_database("DROP TABLE memories", f"CREATE VIEW memories AS {_ENDLESS}"), _CODE),
    "view that says it is a table": (
        _database(
            "DROP TABLE memories",
            f"CREATE VIEW memories AS {_ENDLESS}",
            "PRAGMA writable_schema=ON",
            "UPDATE sqlite_master SET type = 'table' WHERE name = 'memories'",
        ),
        "file: cannot be read: malformed database schema",
    ),
    "trigger": (_database("CREATE TRIGGER t AFTER INSERT ON memories BEGIN SELECT 1; END"), _CODE),
    "virtual table": (_database("CREATE VIRTUAL TABLE v USING fts5(a)"), _CODE),
    "schema that is no SQL": (
        _database("PRAGMA writable_schema=ON", "UPDATE sqlite_master SET sql = 'DROP TABLE users' WHERE name = 'apps'"),
        "file: cannot be read: malformed database schema",
    ),
    "huge row": (
        _database("UPDATE memories SET content = hex(zeroblob(40000000))"),
        "file: cannot be read: string or blob too big",
    ),
    "other database": (_database("DROP TABLE memories"), "it has no table memories"),
    "truncated database": (_changed(lambda content: content[: len(content) // 2]), "file: (cannot be read|is damaged)"),
    "damaged database": (
        _changed(lambda content: content[:8192] + os.urandom(4096) * 8 + content[8192 + 8 * 4096 :]),
        "file: (cannot be read|is damaged)",
    ),
    "head of a database": (_bytes(b"SQLite format 3\x00"), "file: cannot be read"),
    "noise after the head of a database": (_bytes(b"SQLite format 3\x00" + os.urandom(9000)), "file: cannot be read"),
    "bomb": (_zip(b'{"memories": [' + b" " * 200_000_000), "unpacks to more than 200 times its size"),
    "truncated zip": (
        lambda path, user: _zip(json.dumps({"memories": [], "x": os.urandom(4000).hex()}).encode())(path, user)[:-300],
        "Invalid zip file",
    ),
    "other zip": (_zip(b"[]"), "must be a JSON object"),
    "picture": (_bytes(b"\x89PNG\r\n\x1a\n" + bytes(100)), "file: must be a database of OpenMemory"),
    "text": (_bytes(b"Dear diary"), "file: must be a database of OpenMemory"),
    "nothing": (_bytes(b""), "file: must not be empty"),
    "JSON Lines": (_bytes(b'{"text": "We meet on Monday."}\n'), "file: is JSON Lines"),
    "truncated JSON": (_bytes(b'[{"memory": "Drinks tea"},'), "file: must be a JSON export of mem0"),
    "deep JSON": (_bytes(b"[" * 100_000), "file: must be a JSON export of mem0"),
    "JSON without memories": (_bytes(b'{"a": 1}'), "file: holds no memories"),
}

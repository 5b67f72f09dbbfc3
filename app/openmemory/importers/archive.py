"""Writes the data of one user of an old installation, row by row, to an archive that the service imports."""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from sqlite3 import Row
from typing import Any, BinaryIO, cast

import orjson

from openmemory.importers.staging import Staging
from openmemory.serialization import exact_json

_TOGETHER = 200
"""Rows written at once."""

_MINE = "(SELECT id FROM memories WHERE user_id = :user)"
_USED = f"""
    owner_id = :user OR id IN (SELECT app_id FROM memories WHERE user_id = :user)
    OR id IN (SELECT app_id FROM memory_access_logs WHERE memory_id IN {_MINE})
    OR id IN (SELECT subject_id FROM access_controls WHERE object_type = 'memory' AND object_id IN {_MINE})
"""  # noqa: S608 - only constants are put in

_RULES = f"""
    (object_type = 'memory' AND object_id IN {_MINE})
    OR ((object_type <> 'memory' OR object_id IS NULL) AND subject_id IN (SELECT id FROM apps WHERE owner_id = :user))
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class ArchiveCounts:
    """The counts of an archive's contents."""

    memories: dict[str, int] = field(default_factory=dict)
    """By state."""
    apps: int = 0
    categories: int = 0
    history: int = 0
    access_logs: int = 0
    rules: int = 0
    policies: int = 0


class _Writer:
    """The archive of one user. `_same` maps an app to the app of the same name that is written."""

    def __init__(self, staging: Staging, user: str) -> None:
        self._staging = staging
        self._user = user
        self._apps: dict[str, Row] = {}
        self._same: dict[str, str] = {}
        by_name: dict[str, str] = {}
        # The user's own apps come first. Another user's app of the same name is merged into them.
        query = f"SELECT * FROM apps WHERE {_USED} ORDER BY owner_id <> :user, name, id"  # noqa: S608
        for app in self._rows(query):
            first = by_name.setdefault(app["name"], app["id"])
            self._same[app["id"]] = first
            if first == app["id"]:
                self._apps[first] = app

    def _rows(self, query: str) -> Iterator[Row]:
        yield from self._staging.connection.execute(query, {"user": self._user})

    def _count(self, query: str) -> int:
        return int(self._staging.connection.execute(query, {"user": self._user}).fetchone()[0])

    def tables(self) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
        """The lists of `memories.json`, in order."""
        yield "apps", map(self._app, self._apps.values())
        yield "categories", (_plain(row) for row in self._rows(_CATEGORIES))
        yield "memories", (self._memory(row) for row in self._rows(_MEMORIES))
        yield (
            "memory_categories",
            (
                _plain(row)
                for row in self._rows(f"SELECT * FROM memory_categories WHERE memory_id IN {_MINE}")  # noqa: S608
            ),
        )
        yield (
            "status_history",
            (
                _plain(row) | {"changed_by": self._user}
                for row in self._rows(f"SELECT * FROM memory_status_history WHERE memory_id IN {_MINE}")  # noqa: S608
            ),
        )
        yield "access_controls", (self._rule(row) for row in self._rules())
        yield "archive_policies", (self._policy(row) for row in self._policies())

    def lines(self) -> Iterator[dict[str, Any]]:
        """The memories in the format of `memories.jsonl.gz`."""
        query = """
            SELECT m.*, (SELECT json_group_array(c.name) FROM memory_categories AS mc
                         JOIN categories AS c ON c.id = mc.category_id WHERE mc.memory_id = m.id) AS names
            FROM memories AS m WHERE m.user_id = :user ORDER BY m.id
        """
        for row in self._rows(query):
            app = self._apps[self._same[row["app_id"]]]["name"]
            yield {
                "id": row["id"], "content": row["content"], "metadata": exact_json.loads(row["metadata"]),
                "created_at": row["created_at"], "updated_at": row["updated_at"], "state": row["state"],
                "app": app, "categories": orjson.loads(row["names"]),
            }  # fmt: skip

    def accesses(self) -> Iterator[dict[str, Any]]:
        """The entries of the access log."""
        for row in self._rows(f"SELECT * FROM memory_access_logs WHERE memory_id IN {_MINE}"):  # noqa: S608
            yield _plain(row) | {
                "app_id": self._same[row["app_id"]], "metadata": exact_json.loads(row["metadata"]),
            }  # fmt: skip

    def contents(self) -> ArchiveCounts:
        """The counts of the rows to write."""
        return ArchiveCounts(
            memories=self._staging.states(self._user),
            apps=len(self._apps),
            categories=self._count(f"SELECT count(*) FROM ({_CATEGORIES})"),  # noqa: S608
            history=self._count(f"SELECT count(*) FROM memory_status_history WHERE memory_id IN {_MINE}"),  # noqa: S608
            access_logs=self._count(f"SELECT count(*) FROM memory_access_logs WHERE memory_id IN {_MINE}"),  # noqa: S608
            rules=self._count(f"SELECT count(*) FROM access_controls WHERE {_RULES}"),  # noqa: S608
            policies=sum(1 for _ in self._policies()),
        )

    def user(self) -> dict[str, Any]:
        """The user's own row."""
        [row] = self._rows("SELECT * FROM users WHERE id = :user")
        return _plain(row) | {"metadata": exact_json.loads(row["metadata"])}

    def _app(self, row: Row) -> dict[str, Any]:
        return _plain(row) | {
            "owner_id": self._user, "metadata": exact_json.loads(row["metadata"]), "is_active": bool(row["is_active"]),
        }  # fmt: skip

    def _memory(self, row: Row) -> dict[str, Any]:
        memory = _plain(row) | {"app_id": self._same[row["app_id"]], "metadata": exact_json.loads(row["metadata"])}
        thread = memory.pop("thread_id")
        memory["category_ids"] = orjson.loads(memory.pop("filed"))
        return memory if thread is None else memory | {"thread_id": thread}

    def _rules(self) -> Iterator[Row]:
        """The rules for the user's own apps, and those for other users' apps about the user's memories."""
        yield from self._rows(f"SELECT * FROM access_controls WHERE {_RULES} ORDER BY id")  # noqa: S608

    def _rule(self, row: Row) -> dict[str, Any]:
        about_app = row["object_type"] == "app" and row["object_id"] in self._same
        changed = {"object_id": self._same[row["object_id"]]} if about_app else {}
        return _plain(row) | {"subject_id": self._same[row["subject_id"]]} | changed

    def _policies(self) -> Iterator[Row]:
        """The policies for the user, for the user's apps, and for categories assigned to the user's memories."""
        yield from self._rows(
            f"""
            SELECT * FROM archive_policies WHERE criteria_id = :user AND criteria_type = 'user'
            OR criteria_type = 'app' AND criteria_id IN (SELECT id FROM apps WHERE owner_id = :user)
            OR criteria_type = 'category' AND criteria_id IN (
                SELECT category_id FROM memory_categories WHERE memory_id IN {_MINE})
            ORDER BY id
            """  # noqa: S608 - only constants are put in
        )

    def _policy(self, row: Row) -> dict[str, Any]:
        named = row["criteria_type"] == "app"
        return _plain(row) | ({"criteria_id": self._same[row["criteria_id"]]} if named else {})


_CATEGORIES = f"""
    SELECT * FROM categories
    WHERE id IN (SELECT category_id FROM memory_categories WHERE memory_id IN {_MINE}) ORDER BY id
"""  # noqa: S608
_MEMORIES = """
    SELECT m.*, (SELECT json_group_array(category_id) FROM memory_categories WHERE memory_id = m.id) AS filed
    FROM memories AS m WHERE m.user_id = :user ORDER BY m.id
"""


def contents(staging: Staging, user: str) -> ArchiveCounts:
    """The counts of what the archive of one user would contain."""
    return _Writer(staging, user).contents()


def write(staging: Staging, user: str, path: Path, show: Callable[[int, int | None], None]) -> None:
    """Writes the archive of one user. Calls `show` with the number of memories written and their total."""
    writer = _Writer(staging, user)
    total = sum(staging.states(user).values())
    with zipfile.ZipFile(path, "w") as archive:
        with _member(archive, "memories.json") as file:
            file.write(b'{"user":' + exact_json.dumps(writer.user()))
            for name, rows in writer.tables():
                file.write(b',"%s":[' % name.encode())
                _write(file, rows, b",", show=(lambda done: show(done, total)) if name == "memories" else None)
                file.write(b"]")
            file.write(b',"export_meta":' + orjson.dumps(_meta()) + b"}")
        for name, lines in (("memories.jsonl.gz", writer.lines()), ("access_logs.jsonl.gz", writer.accesses())):
            with lines_member(archive, name) as file:
                _write(file, lines, b"\n")


def _write(
    file: BinaryIO, rows: Iterable[dict[str, Any]], between: bytes, *, show: Callable[[int], None] | None = None
) -> None:
    pending: list[bytes] = []
    done = 0

    def flush() -> None:
        file.write((between if done else b"") + between.join(pending))

    for row in rows:
        pending.append(exact_json.dumps(row))
        if len(pending) == _TOGETHER:
            flush()
            done += len(pending)
            pending.clear()
            if show is not None:
                show(done)
    if pending:
        flush()


@contextmanager
def _member(archive: zipfile.ZipFile, name: str, method: int = zipfile.ZIP_DEFLATED) -> Iterator[BinaryIO]:
    info = zipfile.ZipInfo(name, datetime.now(UTC).timetuple()[:6])
    info.compress_type = method
    with archive.open(info, "w", force_zip64=True) as file:
        yield cast(BinaryIO, file)


@contextmanager
def lines_member(archive: zipfile.ZipFile, name: str) -> Iterator[BinaryIO]:
    """Opens a compressed JSON Lines member for writing."""
    with _member(archive, name, zipfile.ZIP_STORED) as file, gzip.GzipFile(fileobj=file, mode="wb") as lines:
        yield cast(BinaryIO, lines)


def _meta() -> dict[str, Any]:
    return {
        "app_id_filter": None, "from_date": None, "to_date": None, "version": "1",
        "generated_at": datetime.now(UTC).isoformat(), "include_vectors": False, "generator": "openmemory import",
    }  # fmt: skip


def _plain(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in row.keys()}  # noqa: SIM118 - a Row iterates over its values

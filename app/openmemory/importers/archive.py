"""Writes the data of one user of an old installation, row by row, to an archive that the service imports."""

from __future__ import annotations

import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from sqlite3 import Row
from typing import IO, Any, cast

import orjson

from openmemory.backup.container import lines_member
from openmemory.backup.format import TABLES
from openmemory.importers.staging import Staging
from openmemory.schema.archives import ACCESS_LOGS, LINKS, PASSAGES, PROJECTS, REVISIONS, SOURCES
from openmemory.serialization import exact_json
from openmemory.uploads.spool import Spool

_SHOW_EVERY = 200
"""Memories written between two reports of the progress."""

_MINE = "(SELECT id FROM memories WHERE user_id = :user)"
_USED = f"""
    owner_id = :user OR id IN (SELECT app_id FROM memories WHERE user_id = :user)
    OR id IN (SELECT app_id FROM memory_access_logs WHERE memory_id IN {_MINE})
    OR id IN (SELECT subject_id FROM access_controls WHERE object_type = 'memory' AND object_id IN {_MINE})
"""  # noqa: S608 - only constants are put in

_RULES = f"""
    access_controls WHERE (object_type = 'memory' AND object_id IN {_MINE})
    OR ((object_type <> 'memory' OR object_id IS NULL) AND subject_id IN (SELECT id FROM apps WHERE owner_id = :user))
"""  # noqa: S608
"""The rules for the user's own apps, and those for other users' apps about the user's memories."""

_POLICIES = f"""
    archive_policies WHERE (criteria_id = :user AND criteria_type = 'user'
    OR criteria_type = 'app' AND criteria_id IN (SELECT id FROM apps WHERE owner_id = :user)
    OR criteria_type = 'category' AND criteria_id IN (
        SELECT category_id FROM memory_categories WHERE memory_id IN {_MINE}))
"""  # noqa: S608
"""The policies for the user, for the user's apps, and for categories assigned to the user's memories."""


@dataclass(frozen=True, slots=True)
class ArchiveCounts:
    """The counts of an archive's contents."""

    memories: dict[str, int] = field(default_factory=dict)
    """By state."""
    by_app: dict[str, int] = field(default_factory=dict)
    """Numbers of memories by the name of the app, the largest first."""
    apps: int = 0
    categories: int = 0
    history: int = 0
    access_logs: int = 0
    rules: int = 0
    policies: int = 0
    revisions: int = 0
    links: int = 0
    projects: int = 0
    sources: int = 0
    passages: int = 0


class UserArchive:
    """The archive of one user. `_same` maps an app to the app of the same name that is written."""

    def __init__(self, staging: Staging, user: str) -> None:
        self._staging = staging
        self._user = user
        self._apps: dict[str, str] = {}
        """The names of the apps that are written, by id."""
        self._same: dict[str, str] = {}
        by_name: dict[str, str] = {}
        # The user's own apps come first. Another user's app of the same name is merged into them.
        query = f"SELECT id, name FROM apps WHERE {_USED} ORDER BY owner_id <> :user, name, id"  # noqa: S608
        for app in self._rows(query):
            first = by_name.setdefault(app["name"], app["id"])
            self._same[app["id"]] = first
            if first == app["id"]:
                self._apps[first] = app["name"]

    def _rows(self, query: str) -> Iterator[Row]:
        return self._staging.rows(query, user=self._user)

    def _of_memories(self, table: str) -> Iterator[Row]:
        return self._rows(f"SELECT * FROM {table} WHERE memory_id IN {_MINE}")  # noqa: S608 - only constants are put in

    def _count(self, rows: str) -> int:
        [row] = self._rows(f"SELECT count(*) FROM {rows}")  # noqa: S608 - as above
        return int(row[0])

    def contents(self) -> ArchiveCounts:
        """The counts of what the archive contains."""
        return ArchiveCounts(
            memories=self._staging.states(self._user),
            by_app=self._by_app(),
            apps=len(self._apps),
            categories=self._count(f"({_CATEGORIES})"),
            history=self._count(f"memory_status_history WHERE memory_id IN {_MINE}"),
            access_logs=self._count(f"memory_access_logs WHERE memory_id IN {_MINE}"),
            rules=self._count(_RULES),
            policies=self._count(_POLICIES),
            **{name: self._count(f"{table} WHERE {which}") for name, table, which in _MEMBERS.values()},
        )

    def _by_app(self) -> dict[str, int]:
        counts: Counter[str] = Counter()
        for row in self._rows("SELECT app_id, count(*) AS n FROM memories WHERE user_id = :user GROUP BY app_id"):
            counts[self._apps[self._same[row["app_id"]]]] += row["n"]
        return dict(counts.most_common())

    def write(self, path: Path | Spool, show: Callable[[int, int | None], None]) -> None:
        """Writes the archive. Calls `show` with the number of memories written and their total."""
        total = sum(self._staging.states(self._user).values())
        with zipfile.ZipFile(cast(IO[bytes], path), "w", zipfile.ZIP_DEFLATED) as archive:
            with archive.open(TABLES, "w", force_zip64=True) as file:
                file.write(b'{"user":' + exact_json.dumps(self._user_row()))
                for name, rows in self._tables():
                    file.write(b',"%s":[' % name.encode())
                    for number, row in enumerate(rows):
                        file.write((b"," if number else b"") + exact_json.dumps(row))
                        if name == "memories" and number % _SHOW_EVERY == 0:
                            show(number, total)
                    file.write(b"]")
                file.write(b',"export_meta":{"version":"1","generator":"openmemory import"}}')
            with lines_member(archive, ACCESS_LOGS.name) as lines:
                for access in self._accesses():
                    lines.write(exact_json.dumps(access) + b"\n")
            for member, (_, table, which) in _MEMBERS.items():
                if self._count(f"{table} WHERE {which}"):
                    with lines_member(archive, member) as lines:
                        for record in self._rows(f"SELECT * FROM {table} WHERE {which} ORDER BY rowid"):  # noqa: S608
                            lines.write(exact_json.dumps(self._record(record)) + b"\n")

    def _tables(self) -> Iterator[tuple[str, Iterable[dict[str, Any]]]]:
        """The lists of `memories.json`, in order."""
        history = (_plain(row) | {"changed_by": self._user} for row in self._of_memories("memory_status_history"))
        apps = (row for id_ in self._apps for row in self._staging.rows("SELECT * FROM apps WHERE id = :id", id=id_))
        yield "apps", map(self._app, apps)
        yield "categories", map(_plain, self._rows(_CATEGORIES))
        yield "memories", map(self._memory, self._rows(_MEMORIES))
        yield "memory_categories", map(_plain, self._of_memories("memory_categories"))
        yield "status_history", history
        yield "access_controls", map(self._rule, self._rows(f"SELECT * FROM {_RULES} ORDER BY id"))  # noqa: S608
        yield "archive_policies", map(self._policy, self._rows(f"SELECT * FROM {_POLICIES} ORDER BY id"))  # noqa: S608

    def _accesses(self) -> Iterator[dict[str, Any]]:
        """The entries of the access log."""
        for row in self._of_memories("memory_access_logs"):
            yield _plain(row) | {
                "app_id": self._same[row["app_id"]], "metadata": exact_json.loads(row["metadata"]),
            }  # fmt: skip

    def _user_row(self) -> dict[str, Any]:
        """The user's own row."""
        [row] = self._rows("SELECT * FROM users WHERE id = :user")
        return _plain(row) | {"metadata": exact_json.loads(row["metadata"])}

    def _app(self, row: Row) -> dict[str, Any]:
        return _plain(row) | {
            "owner_id": self._user, "metadata": exact_json.loads(row["metadata"]), "is_active": bool(row["is_active"]),
        }  # fmt: skip

    def _memory(self, row: Row) -> dict[str, Any]:
        memory = {name: value for name, value in _plain(row).items() if value is not None or name in _NULLABLE}
        memory["category_ids"] = orjson.loads(memory.pop("assigned"))
        return memory | {"app_id": self._same[row["app_id"]], "metadata": exact_json.loads(row["metadata"])}

    def _record(self, row: Row) -> dict[str, Any]:
        """A row of one of the `_MEMBERS`."""
        record = {name: value for name, value in _plain(row).items() if value is not None}
        if "metadata" in record:
            record["metadata"] = exact_json.loads(record["metadata"])
        # The other program has read its conversations already.
        return record | {"infer": bool(record["infer"])} if "infer" in record else record

    def _rule(self, row: Row) -> dict[str, Any]:
        about_app = row["object_type"] == "app" and row["object_id"] in self._same
        changes = {"object_id": self._same[row["object_id"]]} if about_app else {}
        return _plain(row) | {"subject_id": self._same[row["subject_id"]]} | changes

    def _policy(self, row: Row) -> dict[str, Any]:
        is_of_app = row["criteria_type"] == "app"
        return _plain(row) | ({"criteria_id": self._same[row["criteria_id"]]} if is_of_app else {})


_MEMBERS = {
    REVISIONS.name: ("revisions", "memory_revisions", f"memory_id IN {_MINE}"),
    LINKS.name: ("links", "memory_links", f"from_id IN {_MINE}"),
    PROJECTS.name: ("projects", "projects", "user_id = :user"),
    SOURCES.name: ("sources", "sources", "user_id = :user"),
    PASSAGES.name: ("passages", "passages", "user_id = :user"),
}  # fmt: skip
"""The members with what only other programs store: the name of their count, their table, and the user's rows in it."""
_NULLABLE = ("archived_at", "deleted_at")
"""The fields of a memory that OpenMemory writes even if they are null."""
_CATEGORIES = f"""
    SELECT * FROM categories
    WHERE id IN (SELECT category_id FROM memory_categories WHERE memory_id IN {_MINE}) ORDER BY id
"""  # noqa: S608
_MEMORIES = """
    SELECT m.*, (SELECT json_group_array(category_id) FROM memory_categories WHERE memory_id = m.id) AS assigned
    FROM memories AS m WHERE m.user_id = :user ORDER BY m.id
"""


def _plain(row: Row) -> dict[str, Any]:
    return {name: row[name] for name in row.keys()}  # noqa: SIM118 - a Row iterates over its values

"""Stages the cleaned rows of an old installation in a SQLite file until they are sent. This needs little memory for any
source and size, and allows an archive to be written per user."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

from openmemory.importers.cleaning import (
    STATES,
    CleanedJson,
    Unusable,
    flag,
    identifier,
    mapping,
    moment,
    share,
    state,
    text,
    whole,
    words,
)
from openmemory.importers.left_out import Ledger, SkippedRows
from openmemory.importers.source import MAX_ROW_BYTES, ReadingLimit

Clean = Callable[[str, Any], Any]


@dataclass(frozen=True, slots=True)
class Column:
    """The cleaning function of a column, and the replacement for a missing value: None, a default, or another column's
    time.

    `needed`: the row is rejected if the value is missing.
    """

    clean: Clean
    needed: bool = False
    default: Any = None
    like: str | None = None


_ID = Column(identifier, needed=True)
_MAYBE_ID = Column(identifier)
_TEXT = Column(text, needed=True)
_WORDS = Column(words)
_OBJECT = Column(mapping, default="{}")
_TIME = Column(moment, like="updated_at")
_CHANGED = Column(moment, like="created_at")
_WHEN = Column(moment, needed=True)
_MAYBE_TIME = Column(moment)
_NUMBER = Column(whole)

OLD_TABLES: dict[str, dict[str, Column]] = {
    "users": {
        "id": _ID, "user_id": _TEXT, "name": _WORDS, "email": _WORDS, "metadata": _OBJECT,
        "created_at": _TIME, "updated_at": _CHANGED,
    },
    "apps": {
        "id": _ID, "owner_id": _ID, "name": _TEXT, "description": _WORDS, "metadata": _OBJECT,
        "is_active": Column(flag, default=1), "created_at": _TIME, "updated_at": _CHANGED,
    },
    "categories": {
        "id": _ID, "name": _TEXT, "description": _WORDS, "created_at": _TIME, "updated_at": _CHANGED,
    },
    "memories": {
        "id": _ID, "user_id": _ID, "app_id": _ID, "content": _TEXT, "metadata": _OBJECT,
        "state": Column(state, default="active"), "created_at": _TIME, "updated_at": _CHANGED,
        "archived_at": _MAYBE_TIME, "deleted_at": _MAYBE_TIME, "thread_id": _WORDS, "namespace": _WORDS,
        "kind": _WORDS, "key": _WORDS, "importance": Column(share), "expires_at": _MAYBE_TIME,
        "valid_from": _MAYBE_TIME, "valid_until": _MAYBE_TIME, "superseded_by": _MAYBE_ID, "revision": _NUMBER,
    },
    "memory_categories": {"memory_id": _ID, "category_id": _ID},
    "memory_status_history": {
        "id": _ID, "memory_id": _ID, "changed_by": _MAYBE_ID, "old_state": Column(state),
        "new_state": Column(state, needed=True), "changed_at": _WHEN,
    },
    "access_controls": {
        "id": _ID, "subject_type": _TEXT, "subject_id": _MAYBE_ID, "object_type": _TEXT, "object_id": _MAYBE_ID,
        "effect": _TEXT, "created_at": _TIME,
    },
    "archive_policies": {
        "id": _ID, "criteria_type": _TEXT, "criteria_id": _MAYBE_ID,
        "days_to_archive": Column(whole, needed=True), "created_at": _TIME,
    },
    "memory_access_logs": {
        "id": _ID, "memory_id": _ID, "app_id": _ID, "accessed_at": _WHEN, "access_type": _TEXT, "metadata": _OBJECT,
    },
}  # fmt: skip
"""The tables of OpenMemory, by name."""

TABLES: dict[str, dict[str, Column]] = OLD_TABLES | {
    "memory_revisions": {
        "id": _ID, "memory_id": _ID, "app_id": _ID, "revision": Column(whole, needed=True), "old_text": _WORDS,
        "new_text": _TEXT, "metadata": _OBJECT, "changed_at": _WHEN,
    },
    "memory_links": {
        "id": _ID, "from_id": _ID, "rel": _TEXT, "to_id": _ID, "app_id": _ID, "created_at": _TIME,
    },
    "projects": {
        "id": _ID, "user_id": _ID, "app_id": _ID, "namespace": _TEXT, "name": _WORDS, "root": _WORDS, "head": _WORDS,
        "branch": _WORDS, "metadata": _OBJECT, "created_at": _TIME, "updated_at": _CHANGED,
    },
    "sources": {
        "id": _ID, "user_id": _ID, "app_id": _ID, "kind": _TEXT, "namespace": Column(text, default="default"),
        "locator": _TEXT, "language": _WORDS, "media_type": _WORDS, "hash": _WORDS, "bytes": _NUMBER, "title": _WORDS,
        "summary": _WORDS, "metadata": _OBJECT, "created_at": _TIME, "updated_at": _CHANGED, "closed_at": _MAYBE_TIME,
        "infer": Column(flag, default=0),
    },
    "passages": {
        "id": _ID, "user_id": _ID, "source_id": _ID, "kind": _TEXT, "position": Column(whole, needed=True),
        "external_id": _WORDS, "role": _WORDS, "heading": _WORDS, "first_line": _NUMBER, "last_line": _NUMBER,
        "content": _TEXT, "metadata": _OBJECT, "created_at": _TIME,
    },
}  # fmt: skip
"""All tables, by name: those of OpenMemory, and what other programs store besides."""

_INDEXES = (
    "memories(user_id, id)", "memories(app_id)", "memory_categories(category_id)", "memory_status_history(memory_id)",
    "memory_access_logs(memory_id)", "apps(owner_id)", "memory_revisions(memory_id)", "memory_links(from_id)",
    "sources(user_id)", "passages(user_id)", "passages(source_id)",
)  # fmt: skip
_PAGE_BYTES = 4096
"""The default size of SQLite's pages."""
_LOOK_EVERY = 1_000
"""Steps of SQLite between two checks of the limit."""
_MAX_DAYS = 36_500
"""Maximum number of days of a policy."""


class Staging:
    """The rows of one installation. An adapter fills it, `settle` is called once, and the archive writer reads it."""

    def __init__(self, folder: Path, limit: ReadingLimit | None = None, most: int | None = None) -> None:
        """`most`: maximum number of bytes of the file."""
        self._limit = limit
        self.general_notes: list[str] = []
        """Further sentences of the report, about the whole installation."""
        self._moved_counts: Counter[str] = Counter()
        # Written in one thread and read in another, but never used by two threads at once.
        self.connection = sqlite3.connect(folder / "staging.sqlite", check_same_thread=False, isolation_level=None)
        self.connection.row_factory = sqlite3.Row
        self.connection.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA temp_store=FILE;")
        if most is not None:
            self.connection.execute(f"PRAGMA max_page_count={most // _PAGE_BYTES}")
        if limit is not None:
            self.connection.set_progress_handler(limit.over, _LOOK_EVERY)
            self.connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_ROW_BYTES)
        self.unknown = datetime.now(UTC).isoformat()
        """The time of rows that have no time."""
        for table, columns in TABLES.items():
            keys = "id" if "id" in columns else ", ".join(columns)
            self.connection.execute(f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({keys}))")
        self._ledger = Ledger(self.connection)
        self.connection.execute("BEGIN")

    def close(self) -> None:
        """Closes the staging and discards its rows."""
        self.connection.close()

    def add(self, table: str, row: Mapping[str, Any]) -> bool:
        """Cleans and adds one row. Returns True if it was added."""
        if self._limit is not None:
            self._limit.check()
        columns = TABLES[table]
        try:
            values = self._cleaned(columns, row)
        except Unusable as error:
            self.refuse(table, row, str(error))
            return False
        marks = ", ".join("?" * len(columns))
        row_count = self.connection.execute(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", values).rowcount  # noqa: S608
        if not row_count and "id" in columns:
            self.refuse(table, row, "id: must be unique")
        if row_count and (numbers := sum(value.numbers for value in values if isinstance(value, CleanedJson))):
            self._ledger.record_mended(table, _usable(columns, row), numbers)
        return bool(row_count)

    def refuse(self, table: str, row: Mapping[str, Any], reason: str) -> None:
        """Records that a row is rejected, with those of its references that are usable."""
        self._ledger.record_skipped(table, _usable(TABLES[table], row), row.get("id"), reason)

    def _cleaned(self, columns: Mapping[str, Column], row: Mapping[str, Any]) -> list[Any]:
        values = []
        for name, column in columns.items():
            value = row.get(name)
            if value is None and column.like is not None:
                value = row.get(column.like) or self.unknown
            if value is None:
                if column.needed:
                    raise Unusable(f"{name}: is missing")
                values.append(column.default)
            else:
                values.append(column.clean(name, value))
        return values

    def settle(self) -> None:
        """Removes rows with dangling references. Call this after all rows have been added."""
        for index, on in enumerate(_INDEXES):
            self.connection.execute(f"CREATE INDEX staged_{index} ON {on}")
        self._ledger.note_filers()
        self._drop("apps", "owner_id NOT IN (SELECT id FROM users)", "its user is missing")
        self._drop("memories", "user_id NOT IN (SELECT id FROM users)", "its user is missing")
        self._file_under_openmemory()
        without_memory = "memory_id NOT IN (SELECT id FROM memories)"
        self._drop("memory_categories", without_memory, "its memory is missing", "memory_id")
        self._drop("memory_categories", "category_id NOT IN (SELECT id FROM categories)", "its category is missing",
                   "memory_id")  # fmt: skip
        self._drop("memory_status_history", without_memory, "its memory is missing")
        self._drop("memory_access_logs", without_memory, "its memory is missing")
        self._drop("memory_access_logs", "app_id NOT IN (SELECT id FROM apps)", "its app is missing")
        self._drop(
            "access_controls",
            "subject_type <> 'app' OR subject_id IS NULL OR subject_id NOT IN (SELECT id FROM apps)",
            "subject_id: must be the id of an app; OpenMemory never applied this rule",
        )
        self._drop("access_controls", "object_type = 'memory' AND object_id NOT IN (SELECT id FROM memories)",
                   "its memory is missing")  # fmt: skip
        self._drop("memory_revisions", without_memory, "its memory is missing")
        for end in ("from_id", "to_id"):
            without_end = f"{end} NOT IN (SELECT id FROM memories)"  # noqa: S608 - only constants are put in
            self._drop("memory_links", without_end, f"{end}: its memory is missing")
        self._drop("passages", "source_id NOT IN (SELECT id FROM sources)", "its source is missing")
        self._drop("sources", "id NOT IN (SELECT source_id FROM passages)", "it has no text")
        self._drop("access_controls", "effect NOT IN ('allow', 'deny')", "effect: must be allow or deny")
        self._settle_policies()
        self._ledger.settle()
        self.connection.execute("COMMIT")

    def _settle_policies(self) -> None:
        """Keeps the policies whose user follows from their criteria, because OpenMemory's policies name no user."""
        policies = "archive_policies"
        self._drop(
            policies, "criteria_type NOT IN ('user', 'app', 'category')", "criteria_type: must be user, app or category"
        )
        self._drop(policies, "criteria_id IS NULL", "criteria_id: is missing, so the user of the policy is unknown")
        self._drop(policies, f"days_to_archive NOT BETWEEN 1 AND {_MAX_DAYS}",
                   f"days_to_archive: must be from 1 to {_MAX_DAYS:,}")  # fmt: skip
        for sort, there in (("user", "SELECT id FROM users"), ("app", "SELECT id FROM apps"),
                            ("category", "SELECT category_id FROM memory_categories")):  # fmt: skip
            self._drop(policies, f"criteria_type = '{sort}' AND criteria_id NOT IN ({there})", f"its {sort} is missing")

    def _drop(self, table: str, which: str, reason: str, id_: str = "id") -> None:
        self._ledger.record_dropped(table, which, reason, id_)
        self.connection.execute(f"DELETE FROM {table} WHERE {which}")  # noqa: S608

    def _file_under_openmemory(self) -> None:
        """Moves memories whose app is gone to the user's app `openmemory`, so that they are not lost."""
        without_app = "app_id NOT IN (SELECT id FROM apps)"
        users = self.connection.execute(f"SELECT DISTINCT user_id FROM memories WHERE {without_app}")  # noqa: S608
        for (user,) in users.fetchall():
            own = self.connection.execute("SELECT id FROM apps WHERE owner_id = ? AND name = 'openmemory'", (user,))
            row = own.fetchone()
            app = row[0] if row else str(uuid5(NAMESPACE_URL, f"openmemory:app:{user}:openmemory"))
            if not row:
                self.add("apps", {"id": app, "owner_id": user, "name": "openmemory"})
            self._moved_counts[user] = self.connection.execute(
                f"UPDATE memories SET app_id = ? WHERE user_id = ? AND {without_app}",  # noqa: S608
                (app, user),
            ).rowcount

    def skipped_rows(self, user: str | None = None) -> SkippedRows:
        """The rejected rows after `settle`: those of a user, by id, including those whose user is unknown; or all."""
        return self._ledger.of(user)

    def notes(self, user: str | None = None) -> list[str]:
        """Further sentences of the report, about a user, by id, or about all users."""
        moved_count = self._moved_counts.total() if user is None else self._moved_counts[user]
        note = f"{moved_count} memories whose app is missing are imported under the app openmemory."
        return [*self.general_notes, note] if moved_count else [*self.general_notes]

    def sizes(self) -> dict[str, int]:
        """The number of memories of every user, by name."""
        query = """
            SELECT u.user_id, (SELECT count(*) FROM memories AS m WHERE m.user_id = u.id) AS n
            FROM users AS u ORDER BY u.user_id
        """
        return {row["user_id"]: row["n"] for row in self.rows(query)}

    def users(self) -> list[tuple[str, str]]:
        """The id and the name of every user."""
        return [(row["id"], row["user_id"]) for row in self.rows("SELECT id, user_id FROM users ORDER BY user_id")]

    def rows(self, query: str, **values: Any) -> Iterator[sqlite3.Row]:
        """The rows of a query, one at a time."""
        yield from self.connection.execute(query, values)

    def states(self, user: str) -> dict[str, int]:
        """The number of a user's memories in each state."""
        counts = dict.fromkeys(STATES, 0)
        query = "SELECT state, count(*) AS n FROM memories WHERE user_id = :user GROUP BY state"
        return counts | {row["state"]: row["n"] for row in self.rows(query, user=user)}


def _usable(columns: Mapping[str, Column], row: Mapping[str, Any]) -> dict[str, Any]:
    """The usable ids and strings of a row, with None for unusable ones."""
    usable: dict[str, Any] = {}
    for name, column in columns.items():
        if column.clean in (identifier, text):
            try:
                usable[name] = None if row.get(name) is None else column.clean(name, row[name])
            except Unusable:
                usable[name] = None
    return usable

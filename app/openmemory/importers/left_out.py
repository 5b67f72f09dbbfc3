"""Rows of an old installation that were not imported, with reason and user. Users see only reports about their own
rows."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

MAX_LISTED_ROWS = 100
"""Maximum number of rejected rows listed by id. All of them are counted."""

_OF: dict[str, dict[str, str]] = {
    "users": {"user": "id"},
    "apps": {"user": "owner_id"},
    "categories": {"category": "id"},
    "memories": {"user": "user_id"},
    "memory_categories": {"memory": "memory_id"},
    "memory_status_history": {"memory": "memory_id", "user": "changed_by"},
    "access_controls": {"memory": "CASE object_type WHEN 'memory' THEN object_id END", "app": "subject_id"},
    "archive_policies": {
        "user": "CASE criteria_type WHEN 'user' THEN criteria_id END",
        "app": "CASE criteria_type WHEN 'app' THEN criteria_id END",
        "category": "CASE criteria_type WHEN 'category' THEN criteria_id END",
    },
    "memory_access_logs": {"memory": "memory_id", "app": "app_id"},
    "memory_revisions": {"memory": "memory_id"},
    "memory_links": {"memory": "from_id"},
    "projects": {"user": "user_id"},
    "sources": {"user": "user_id"},
    "passages": {"user": "user_id"},
}
"""References that identify the user of a row, as SQL over the columns of its table."""

_SORTS = ("user", "app", "memory", "category")

_SCHEMA = f"""
    CREATE TABLE problems (kind, id, ref, reason, numbers, {", ".join(_SORTS)}, owner);
    CREATE INDEX problem_rows ON problems (kind, ref);
"""

_SETTLE = (
    "CREATE INDEX filers_of ON filers (category, user)",
    """
    UPDATE problems SET owner = user WHERE user IN (SELECT id FROM users)
        OR user IN (SELECT ref FROM problems WHERE kind = 'users')
    """,
    """
    UPDATE problems SET owner = coalesce(
        (SELECT user_id FROM memories WHERE id = memory),
        (SELECT max(t.owner) FROM problems AS t WHERE t.kind = 'memories' AND t.ref = problems.memory),
        (SELECT owner_id FROM apps WHERE id = app),
        (SELECT max(t.owner) FROM problems AS t WHERE t.kind = 'apps' AND t.ref = problems.app),
        owner)
    WHERE memory IS NOT NULL OR app IS NOT NULL
    """,
)
"""Users first, then the rows that belong to them: a row may refer to another row that was not imported either."""

_NOBODYS = "(owner IS NULL AND NOT EXISTS (SELECT 1 FROM filers AS f WHERE f.category = problems.category))"
"""Rows without a known user. A category belongs to the users who assign it; any other row belongs to its owner."""

_OF_USER = f"""
    (:user IS NULL OR owner = :user OR {_NOBODYS} OR owner IS NULL
        AND EXISTS (SELECT 1 FROM filers AS f WHERE f.category = problems.category AND f.user = :user))
"""  # noqa: S608 - only constants are put in


class SkippedReason(BaseModel):
    """The number of rows of a table that were left out for one reason."""

    kind: str
    reason: str
    count: int


class SkippedRowsView(BaseModel):
    """The rows of a source that were left out."""

    total: int
    nobodys: int = Field(description="Those of them whose user is unknown.")
    reasons: list[SkippedReason]
    rows: list[dict[str, str]] = Field(description="The first hundred.")
    mended: dict[str, int] = Field(description="Numbers that JSON cannot hold and that became null, by table.")


@dataclass(slots=True)
class SkippedRows:
    """The rows that were not imported, with reasons: the first hundred by id, all of them counted by reason."""

    first_rows: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    nobodys: int = 0
    """Number of these rows whose user is unknown, because no remaining data identifies it."""
    mended: Counter[str] = field(default_factory=Counter)
    """Count, by table, of numbers that JSON cannot represent, such as NaN, and that became null. No row is lost."""

    def note(self, kind: str, id_: Any, reason: str) -> None:
        """Adds a row of a table."""
        self.counts[kind, reason] += 1
        if len(self.first_rows) < MAX_LISTED_ROWS:
            self.first_rows.append({"kind": kind, "id": printable_id(id_), "reason": reason})

    @property
    def total(self) -> int:
        """The total number of rows."""
        return sum(self.counts.values())

    @property
    def view(self) -> SkippedRowsView:
        """The rows as a report shows them."""
        reasons = [
            SkippedReason(kind=kind, reason=reason, count=count) for (kind, reason), count in self.counts.most_common()
        ]
        return SkippedRowsView(
            total=self.total, nobodys=self.nobodys, reasons=reasons, rows=self.first_rows, mended=dict(self.mended)
        )


class Ledger:
    """Records the rejected rows of a staging in the same SQLite file, because there may be any number of them."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.executescript(_SCHEMA)

    def record_skipped(self, table: str, row: Mapping[str, Any], id_: Any, reason: str) -> None:
        """Records a row that is not imported. `row` has the columns of the table, with None for unusable values."""
        self._note(table, row, printable_id(id_), reason, None)

    def record_mended(self, table: str, row: Mapping[str, Any], numbers: int) -> None:
        """Records a row that is imported with null in place of numbers that JSON cannot represent."""
        self._note(table, row, None, None, numbers)

    def _note(
        self, table: str, row: Mapping[str, Any], id_: str | None, reason: str | None, numbers: int | None
    ) -> None:
        columns = ", ".join(f":{name} AS {name}" for name in row)
        values = {**row, "_id": id_, "_ref": row.get("id"), "_reason": reason, "_numbers": numbers}
        self._connection.execute(
            f"INSERT INTO problems SELECT '{table}', :_id, :_ref, :_reason, :_numbers, {_refers(table)}, NULL"  # noqa: S608
            f" FROM (SELECT {columns})",
            values,
        )

    def record_dropped(self, table: str, which: str, reason: str, id_: str) -> None:
        """Records rows that are about to be removed. `id_`: the column that identifies a row."""
        ref = "id" if id_ == "id" else "NULL"
        if ref != "NULL":
            self._connection.execute(
                f"DELETE FROM problems WHERE kind = '{table}' AND numbers IS NOT NULL"  # noqa: S608
                f" AND ref IN (SELECT id FROM {table} WHERE {which})"
            )
        self._connection.execute(
            f"INSERT INTO problems SELECT '{table}', {id_}, {ref}, ?, NULL, {_refers(table)}, NULL"  # noqa: S608
            f" FROM {table} WHERE {which}",
            (reason,),
        )

    def note_filers(self) -> None:
        """Records which users assign which categories, before any row is removed."""
        self._connection.execute(
            "CREATE TABLE filers AS SELECT DISTINCT mc.category_id AS category, m.user_id AS user"
            " FROM memory_categories AS mc JOIN memories AS m ON m.id = mc.memory_id"
        )

    def settle(self) -> None:
        """Determines the user of every recorded row. Call this after all rows have been added and removed."""
        for statement in _SETTLE:
            self._connection.execute(statement)

    def of(self, user: str | None) -> SkippedRows:
        """The rejected rows of a user, by id, including those whose user is unknown. None: of all users."""
        values = {"user": user}
        skipped_rows = SkippedRows()
        skipped_sql = f"FROM problems WHERE numbers IS NULL AND {_OF_USER}"
        for row in self._connection.execute(
            f"SELECT kind, reason, count(*), sum({_NOBODYS}) {skipped_sql} GROUP BY kind, reason ORDER BY min(rowid)",
            values,
        ):
            skipped_rows.counts[row[0], row[1]] = row[2]
            skipped_rows.nobodys += row[3]
        for row in self._connection.execute(
            f"SELECT kind, id, reason {skipped_sql} ORDER BY rowid LIMIT {MAX_LISTED_ROWS}",
            values,
        ):
            skipped_rows.first_rows.append({"kind": row[0], "id": row[1], "reason": row[2]})
        mended_sql = f"SELECT kind, sum(numbers) FROM problems WHERE numbers IS NOT NULL AND {_OF_USER} GROUP BY kind"  # noqa: S608
        skipped_rows.mended.update(dict(self._connection.execute(mended_sql, values).fetchall()))
        return skipped_rows


def _refers(table: str) -> str:
    return ", ".join(_OF[table].get(sort, "NULL") for sort in _SORTS)


def printable_id(id_: Any) -> str:
    """Any id value as printable text for a report."""
    text = id_.hex() if isinstance(id_, bytes) else str(id_)
    return "".join(sign if sign.isprintable() else "?" for sign in text[:64])

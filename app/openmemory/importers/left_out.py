"""What could not be taken of an old installation: why, and whose it was, so that nobody hears of another's losses."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SHOWN = 100
"""How many of the things that could not be taken are named; all are counted."""

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
}
"""What a row of a table refers to that can tell whose it is, as SQL over its columns."""

_SORTS = ("user", "app", "memory", "category")

_SCHEMA = f"""
    CREATE TABLE told (kind, id, ref, reason, numbers, {", ".join(_SORTS)}, owner);
    CREATE INDEX told_rows ON told (kind, ref);
"""

_SETTLE = """
    CREATE INDEX filers_of ON filers (category, user);
    UPDATE told SET owner = user WHERE user IN (SELECT id FROM users)
        OR user IN (SELECT ref FROM told WHERE kind = 'users');
    UPDATE told SET owner = coalesce(
        (SELECT user_id FROM memories WHERE id = memory),
        (SELECT max(t.owner) FROM told AS t WHERE t.kind = 'memories' AND t.ref = told.memory),
        (SELECT owner_id FROM apps WHERE id = app),
        (SELECT max(t.owner) FROM told AS t WHERE t.kind = 'apps' AND t.ref = told.app),
        owner)
    WHERE memory IS NOT NULL OR app IS NOT NULL;
"""
"""Users first, then what belongs to them: a row may refer to one that could not be taken either."""

_NOBODYS = "(owner IS NULL AND NOT EXISTS (SELECT 1 FROM filers AS f WHERE f.category = told.category))"
"""A category is theirs who file under it; whose anything else is, its owner says."""

_ASKED = f"""
    (:user IS NULL OR owner = :user OR {_NOBODYS} OR owner IS NULL
        AND EXISTS (SELECT 1 FROM filers AS f WHERE f.category = told.category AND f.user = :user))
"""  # noqa: S608 - only constants are put in


@dataclass(slots=True)
class LeftOut:
    """What could not be taken, and why: the first hundred by id, all of them counted by reason."""

    shown: list[dict[str, str]] = field(default_factory=list)
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    nobodys: int = 0
    """How many of them may be anybody's: nothing that is there tells whose they were."""
    mended: Counter[str] = field(default_factory=Counter)
    """Numbers that JSON cannot say, such as NaN, by the table in whose rows they became null. No row is lost by it."""

    def note(self, kind: str, id_: Any, reason: str, count: int = 1) -> None:
        """One row, or `count` of them, of a table."""
        self.counts[kind, reason] += count
        if len(self.shown) < SHOWN:
            self.shown.append({"kind": kind, "id": shown(id_), "reason": reason})

    @property
    def total(self) -> int:
        """How many rows there are in all."""
        return sum(self.counts.values())


class Ledger:
    """Where a staging notes what it could not take, in the same SQLite file: there may be any number of it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.executescript(_SCHEMA)

    def lost(self, table: str, row: Mapping[str, Any], id_: Any, reason: str) -> None:
        """A row that is not taken. `row` has the columns of the table, None where nothing can be used."""
        self._note(table, row, shown(id_), reason, None)

    def mended(self, table: str, row: Mapping[str, Any], numbers: int) -> None:
        """A row that is taken, with null for so many numbers that JSON cannot say."""
        self._note(table, row, None, None, numbers)

    def _note(
        self, table: str, row: Mapping[str, Any], id_: str | None, reason: str | None, numbers: int | None
    ) -> None:
        columns = ", ".join(f":{name} AS {name}" for name in row)
        values = {**row, "_id": id_, "_ref": row.get("id"), "_reason": reason, "_numbers": numbers}
        self._connection.execute(
            f"INSERT INTO told SELECT '{table}', :_id, :_ref, :_reason, :_numbers, {_refers(table)}, NULL"  # noqa: S608
            f" FROM (SELECT {columns})",
            values,
        )

    def dropped(self, table: str, which: str, reason: str, id_: str) -> None:
        """The rows that are about to be removed again. `id_`: the column that names one."""
        ref = "id" if id_ == "id" else "NULL"
        if ref != "NULL":
            self._connection.execute(
                f"DELETE FROM told WHERE kind = '{table}' AND numbers IS NOT NULL"  # noqa: S608
                f" AND ref IN (SELECT id FROM {table} WHERE {which})"
            )
        self._connection.execute(
            f"INSERT INTO told SELECT '{table}', {id_}, {ref}, ?, NULL, {_refers(table)}, NULL"  # noqa: S608
            f" FROM {table} WHERE {which}",
            (reason,),
        )

    def note_filers(self) -> None:
        """Remember who files under what, before anything is removed."""
        self._connection.execute(
            "CREATE TABLE filers AS SELECT DISTINCT mc.category_id AS category, m.user_id AS user"
            " FROM memory_categories AS mc JOIN memories AS m ON m.id = mc.memory_id"
        )

    def settle(self) -> None:
        """Find out whose everything was, once all rows are here and removed."""
        for statement in _SETTLE.split(";"):
            self._connection.execute(statement)

    def of(self, user: str | None) -> LeftOut:
        """What of a user, by their id, could not be taken, with what may be anybody's; None: of everybody."""
        values = {"user": user}
        left_out = LeftOut()
        lost = f"FROM told WHERE numbers IS NULL AND {_ASKED}"
        for row in self._connection.execute(
            f"SELECT kind, reason, count(*), sum({_NOBODYS}) {lost} GROUP BY kind, reason ORDER BY min(rowid)",
            values,
        ):
            left_out.counts[row[0], row[1]] = row[2]
            left_out.nobodys += row[3]
        for row in self._connection.execute(
            f"SELECT kind, id, reason {lost} ORDER BY rowid LIMIT {SHOWN}",
            values,
        ):
            left_out.shown.append({"kind": row[0], "id": row[1], "reason": row[2]})
        mended = f"SELECT kind, sum(numbers) FROM told WHERE numbers IS NOT NULL AND {_ASKED} GROUP BY kind"  # noqa: S608
        left_out.mended.update(dict(self._connection.execute(mended, values).fetchall()))
        return left_out


def _refers(table: str) -> str:
    return ", ".join(_OF[table].get(sort, "NULL") for sort in _SORTS)


def shown(id_: Any) -> str:
    """An id as a report may show it, whatever stood there."""
    found = id_.hex() if isinstance(id_, bytes) else str(id_)
    return "".join(sign if sign.isprintable() else "?" for sign in found[:64])

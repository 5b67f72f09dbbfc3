"""Detects records that an archive repeats within a short distance.

Only such repetitions compress to almost nothing in a zip. Detecting them early keeps a few bytes from causing millions
of rows. `staging` detects repetitions further apart, once everything has been read.
"""

from __future__ import annotations

from collections.abc import Hashable

_MIN_REMEMBERED = 4_096
"""Minimum number of records remembered per kind. A zip refers back 32 KB; every record is longer than eight bytes."""


class RecentRecords:
    """The last records of each kind, by their unique key."""

    __slots__ = ("_last", "_older")

    def __init__(self) -> None:
        self._last: dict[str, dict[Hashable, str]] = {}
        self._older: dict[str, dict[Hashable, str]] = {}

    def place(self, kind: str, key: Hashable, place: str) -> str | None:
        """Remembers a record. Returns the place of a recent record with the same key, or None."""
        last = self._last.setdefault(kind, {})
        before = last.get(key) or self._older.get(kind, {}).get(key)
        if before is None:
            last[key] = place
            if len(last) >= _MIN_REMEMBERED:
                self._older[kind], self._last[kind] = last, {}
        return before

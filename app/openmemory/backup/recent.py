"""What stood in an archive a moment ago.

Only what is repeated within a short distance takes next to no room in a zip, so nobody can have millions of rows
written for a few bytes; what is repeated further apart is found once all of it is there.
"""

from __future__ import annotations

from collections.abc import Hashable

from openmemory.backup.format import malformed

_MANY = 4_096
"""Records of one kind that are remembered at least. A zip refers back 32 KB; no record is as short as eight bytes."""


class Recent:
    """The last records of each kind, by what may be there only once."""

    __slots__ = ("_last", "_older")

    def __init__(self) -> None:
        self._last: dict[str, dict[Hashable, str]] = {}
        self._older: dict[str, dict[Hashable, str]] = {}

    def once(self, kind: str, key: Hashable, place: str, field: str = "id") -> None:
        """Note a record.

        Raises:
            BadArchive: it was there a moment ago.
        """
        if (before := self.place(kind, key, place)) is not None:
            raise malformed(f"{place}.{field}", f"is that of {before} too")

    def place(self, kind: str, key: Hashable, place: str) -> str | None:
        """Note a record; returns where it was a moment ago, if it was."""
        last = self._last.setdefault(kind, {})
        before = last.get(key) or self._older.get(kind, {}).get(key)
        if before is None:
            last[key] = place
            if len(last) >= _MANY:
                self._older[kind], self._last[kind] = last, {}
        return before

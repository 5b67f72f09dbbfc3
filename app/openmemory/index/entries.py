"""Packed pages of entries, for comparing a hundred thousand items between the stores."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple
from uuid import UUID

_ID = 16
_OWNER = 32
WIDTH = 36
"""The bytes of a packed entry: 16 of the id, 16 of the owner's, 4 of the revision, the most significant first."""


class IndexEntry(NamedTuple):
    """The data that reconciliation compares: the revision of an item of a user in the index."""

    id: UUID
    user: UUID
    revision: int


def packed(id: UUID, user: UUID, revision: int) -> bytes:
    """Packs one entry.

    Raises:
        AttributeError, OverflowError: the revision is invalid: not a whole number, or one of more than 31 bits.
    """
    return id.bytes + ending(user, revision)


def ending(user: UUID, revision: int) -> bytes:
    """The part of a packed entry after the id, which many entries share."""
    return user.bytes + revision.to_bytes(4, "big", signed=True)


class IndexEntries:
    """A page of entries in ascending order of id.

    One byte string rather than objects: one comparison shows that two pages are equal, and PostgreSQL can build them
    itself, which costs a third of reading rows. Bytes sort as ids do.
    """

    __slots__ = ("data",)

    def __init__(self, data: bytes) -> None:
        self.data = data

    @classmethod
    def of(cls, entries: Iterable[IndexEntry]) -> IndexEntries:
        """The page of these entries, which must be in order."""
        return cls(b"".join([packed(*entry) for entry in entries]))

    def __len__(self) -> int:
        return len(self.data) // WIDTH

    def __iter__(self) -> Iterator[IndexEntry]:
        return map(_entry, self.parts())

    def parts(self) -> list[bytes]:
        """The packed entries one by one."""
        data = self.data
        return [data[at : at + WIDTH] for at in range(0, len(data), WIDTH)]

    @property
    def last(self) -> bytes:
        """The id of the last entry. The page must not be empty."""
        return self.data[-WIDTH : _ID - WIDTH]

    def split(self, id: bytes) -> tuple[IndexEntries, IndexEntries]:
        """The entries up to this id, and those after it."""
        at = WIDTH * bisect_right(range(len(self)), id, key=self._id)
        return IndexEntries(self.data[:at]), IndexEntries(self.data[at:])

    def _id(self, at: int) -> bytes:
        return self.data[at * WIDTH : at * WIDTH + _ID]


def array_of(ids: Iterable[UUID]) -> str:
    """The ids as a PostgreSQL array literal. The driver would check each for characters to quote."""
    return f"{{{','.join([id_.hex for id_ in ids])}}}"


def id_of(part: bytes) -> UUID:
    """The id of a packed entry."""
    return UUID(bytes=part[:_ID])


def _entry(part: bytes) -> IndexEntry:
    return IndexEntry(id_of(part), UUID(bytes=part[_ID:_OWNER]), int.from_bytes(part[_OWNER:], "big", signed=True))

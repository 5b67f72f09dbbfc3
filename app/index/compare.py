"""Comparing two streams of entries, page by page."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from operator import attrgetter
from uuid import UUID

from app.index.port import Entry

_ID = attrgetter("id")


@dataclass(frozen=True, slots=True)
class Compared:
    """One stretch of both streams: how many entries were `wanted`, and which ids differ on the two sides.

    `missing` are wanted and absent or there in another revision or for another user; `stray` are there and not wanted.
    """

    wanted: int
    missing: list[UUID] = field(default_factory=list)
    stray: list[UUID] = field(default_factory=list)


async def compare(
    wanted: AsyncIterator[list[Entry]], present: AsyncIterator[list[Entry]], *, full: bool = False
) -> AsyncIterator[Compared]:
    """Merge two streams of pages, each in ascending order of id. No more than a page of each is held at a time.

    With `full` everything that is wanted counts as missing.
    """
    left: list[Entry] | None = await anext(wanted, None)
    right: list[Entry] | None = await anext(present, None)
    while left is not None or right is not None:
        if left is None or right is None:
            here, there = left or [], right or []
            left, right = [], []
        else:
            # Both streams are known up to where the shorter one ends.
            reach = min(left[-1].id, right[-1].id)
            at, other = bisect_right(left, reach, key=_ID), bisect_right(right, reach, key=_ID)
            here, left = left[:at], left[at:]
            there, right = right[:other], right[other:]
        yield _compared(here, there, full)
        if left is not None and not left:
            left = await anext(wanted, None)
        if right is not None and not right:
            right = await anext(present, None)


def _compared(here: list[Entry], there: list[Entry], full: bool) -> Compared:
    if here == there and not full:
        return Compared(len(here))
    if not there:
        return Compared(len(here), [entry.id for entry in here])
    known = set(there)
    missing = [entry.id for entry in here if full or entry not in known]
    wanted = {entry.id for entry in here}
    return Compared(len(here), missing, [entry.id for entry in there if entry.id not in wanted])

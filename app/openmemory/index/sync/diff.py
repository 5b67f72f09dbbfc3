"""Compares two streams of entries, page by page."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from itertools import chain
from uuid import UUID

from openmemory.index.entries import IndexEntries, id_of

_NONE = IndexEntries(b"")


@dataclass(frozen=True, slots=True)
class ComparedSection:
    """The result for one section of both streams: the number of `expected` entries, and the ids that differ.

    `missing` entries are expected and absent, or present with another revision or user, which are `outdated`. `stray`
    entries are present and not expected.
    """

    expected: int
    missing: list[UUID] = field(default_factory=list)
    stray: list[UUID] = field(default_factory=list)
    outdated: list[UUID] = field(default_factory=list)


async def compare(
    expected: AsyncIterator[IndexEntries], present: AsyncIterator[IndexEntries], *, full: bool = False
) -> AsyncIterator[ComparedSection]:
    """Merges two streams of pages, each in ascending order of id. Holds at most one page of each.

    With `full`, every expected entry counts as missing.
    """
    left = await anext(expected, None)
    right = await anext(present, None)
    while left is not None or right is not None:
        if left is None or right is None:
            here, there = left or _NONE, right or _NONE
            left, right = left and _NONE, right and _NONE
        else:
            # Both streams are known up to the end of the shorter one.
            end = min(left.last, right.last)
            here, left = left.split(end)
            there, right = right.split(end)
            if not here and not there:
                # Ids that are not our uuids, and out of order: all of them belong to other programs.
                there, right = right, _NONE
        yield _compare_section(here, there, full)
        if left is not None and not left:
            left = await anext(expected, None)
        if right is not None and not right:
            right = await anext(present, None)


async def merged(*streams: AsyncGenerator[IndexEntries, None]) -> AsyncGenerator[IndexEntries, None]:
    """Merges streams of pages into one, each in ascending order of id. Holds at most one page of each. Closing it
    closes all."""
    try:
        pages = [_NONE for _ in streams]
        while True:
            pages = [page or await anext(stream, _NONE) for page, stream in zip(pages, streams, strict=True)]
            if not (ends := [page.last for page in pages if page]):
                return
            # All streams are known up to the end of the shortest one.
            halves = [page.split(min(ends)) for page in pages]
            parts = [here for here, _ in halves if here]
            if len(parts) == 1:
                yield parts[0]
            else:
                yield IndexEntries(b"".join(sorted(chain(*(part.parts() for part in parts)))))
            pages = [left for _, left in halves]
    finally:
        for stream in streams:
            await stream.aclose()


def _compare_section(here: IndexEntries, there: IndexEntries, full: bool) -> ComparedSection:
    if here.data == there.data and not full:
        return ComparedSection(len(here))
    parts = here.parts()
    if not there:
        return ComparedSection(len(here), [id_of(part) for part in parts])
    others = there.parts()
    entries, ids = set(others), [id_of(part) for part in others]
    missing = [id_of(part) for part in parts if full or part not in entries]
    expected_ids, present_ids = {id_of(part) for part in parts}, set(ids)
    return ComparedSection(
        len(here),
        missing,
        [id_ for id_ in ids if id_ not in expected_ids],
        [id_ for id_ in missing if id_ in present_ids],
    )

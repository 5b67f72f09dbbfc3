"""The comparison of two streams, against the difference of two sets."""

from __future__ import annotations

from collections.abc import AsyncIterator
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from openmemory.index.entries import IndexEntries, IndexEntry
from openmemory.index.sync.diff import compare

ENTRIES = st.builds(
    IndexEntry,
    st.integers(1, 40).map(lambda n: UUID(int=n)),
    st.sampled_from([UUID(int=1), UUID(int=2)]),
    st.integers(1, 3),
)
SIDE = st.lists(ENTRIES, unique_by=lambda entry: entry.id).map(sorted)


async def pages(entries: list[IndexEntry], sizes: list[int]) -> AsyncIterator[IndexEntries]:
    at = turn = 0
    while at < len(entries):
        size = sizes[turn % len(sizes)]
        yield IndexEntries.of(entries[at : at + size])
        at, turn = at + size, turn + 1


@given(wanted=SIDE, present=SIDE, sizes=st.lists(st.integers(1, 5), min_size=1), full=st.booleans())
async def test_what_differs_is_found_however_the_pages_are_cut(
    wanted: list[IndexEntry], present: list[IndexEntry], sizes: list[int], full: bool
) -> None:
    missing: list[UUID] = []
    stray: list[UUID] = []
    count = 0
    async for part in compare(pages(wanted, sizes), pages(present, sizes[::-1]), full=full):
        count += part.expected
        missing += part.missing
        stray += part.stray
    assert count == len(wanted)
    assert missing == [entry.id for entry in (wanted if full else sorted(set(wanted) - set(present)))]
    assert stray == sorted({entry.id for entry in present} - {entry.id for entry in wanted})


async def test_ids_that_are_out_of_order_are_strangers_and_end() -> None:
    ours = IndexEntry(UUID(int=2**100), UUID(int=1), 1)
    strangers = [IndexEntry(UUID(int=n), UUID(int=0), 0) for n in (5, 6, 2)]  # numbers come before uuids
    stray: list[UUID] = []
    async for part in compare(pages([ours], [1]), pages(strangers, [3])):
        stray += part.stray
    assert sorted(stray) == [UUID(int=2), UUID(int=5), UUID(int=6)]


async def test_what_is_there_in_another_state_is_outdated() -> None:
    wanted = [IndexEntry(UUID(int=n), UUID(int=1), 2) for n in (1, 2, 3)]
    present = [
        IndexEntry(UUID(int=1), UUID(int=1), 2),
        IndexEntry(UUID(int=2), UUID(int=1), 1),
        IndexEntry(UUID(int=4), UUID(int=1), 1),
    ]
    [part] = [part async for part in compare(pages(wanted, [9]), pages(present, [9])) if part.missing]
    assert (part.missing, part.outdated) == ([UUID(int=2), UUID(int=3)], [UUID(int=2)])

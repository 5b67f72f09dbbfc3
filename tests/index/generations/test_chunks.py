"""Items with several vectors: what both indexes promise."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import numpy as np
import pytest

from openmemory.access.rules import EVERYTHING, RuleObjects, Rules
from openmemory.index.port import Filter, Point, Vector, VectorIndex

ALICE = UUID(int=1)

Build = Callable[..., Point]
Direction = Callable[..., Vector]


def rows(direction: Direction, *seeds: int) -> np.ndarray:
    return np.stack([direction(seed) for seed in seeds])


async def test_the_best_window_of_a_point_counts_and_it_is_found_once(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    points = [
        point(seed, vectors=rows(direction, *range(1_000 * seed, 1_000 * seed + 1 + seed % 7))) for seed in range(300)
    ]
    await index.upsert(points)
    for query in (direction(5_000_003), direction(290_001), direction(6_006)):
        scores = sorted(((float((it.vectors @ query).max()), it.id) for it in points), reverse=True)[:20]
        hits = await index.search(query, Filter(ALICE), 20)
        assert [hit.id for hit in hits] == [id_ for _, id_ in scores]
        assert [hit.score for hit in hits] == pytest.approx([score for score, _ in scores], abs=1e-5)
    assert await index.count() == await index.count(ALICE) == 300
    assert [len(page) async for page in index.entries()] == [300]


async def test_a_few_long_points_among_many_short_ones_are_found(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(seed) for seed in range(1, 400)])
    assert (await index.search(direction(9_000), Filter(ALICE), 1))[0].score < 0.99
    await index.upsert([point(0, vectors=rows(direction, 0, 9_001, 9_000))])
    [hit] = await index.search(direction(9_000), Filter(ALICE), 1)
    assert (hit.id, hit.score) == (point(0).id, pytest.approx(1, abs=1e-5))


async def test_filters_and_rules_hold_for_every_window(index: VectorIndex, point: Build, direction: Direction) -> None:
    long = {"vectors": rows(direction, 1, 2, 3)}
    await index.upsert([
        point(1, **long, namespace="work"), point(2, **long, user=UUID(int=9)), point(3, **long),
        *(point(seed) for seed in range(10, 30)),
    ])  # fmt: skip
    assert (await index.search(direction(3), Filter(ALICE, namespaces=("work",)), 1))[0].id == point(1).id
    excluded = await index.search(direction(3), Filter(ALICE, excluded=(point(1).id,)), 1)
    assert excluded[0].id == point(3).id
    denied = Rules(shared=EVERYTHING, denied=RuleObjects(memories=frozenset({point(1).id, point(3).id})))
    hits = await index.search(direction(3), Filter(ALICE, rules=denied), 50)
    assert {hit.id for hit in hits} == {point(seed).id for seed in range(10, 30)}


async def test_a_point_replaced_by_one_of_fewer_windows_keeps_none_of_the_others(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(1, vectors=rows(direction, 1, 2, 3, 4)), point(2, vectors=rows(direction, 5, 6))])
    await index.upsert([point(1, vectors=rows(direction, 1, 2), revision=2)])
    [first, second] = await index.search(direction(4), Filter(ALICE), 5)
    assert max(first.score, second.score) < 0.99
    await index.upsert([point(1, revision=3)])
    [first, second] = await index.search(direction(2), Filter(ALICE), 5)
    assert max(first.score, second.score) < 0.99
    assert (await index.search(direction(1), Filter(ALICE), 1))[0].score == pytest.approx(1, abs=1e-5)


async def test_deleting_a_point_removes_all_of_its_windows(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(1, vectors=rows(direction, 1, 2, 3)), point(2, vectors=rows(direction, 5, 6))])
    await index.delete([point(1).id])
    assert [hit.id for hit in await index.search(direction(3), Filter(ALICE), 5)] == [point(2).id]
    await index.delete([point(2).id])
    assert await index.search(direction(6), Filter(ALICE), 5) == []
    assert await index.count() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda v: v[0], r"has shape \(16,\); the collection takes \(chunks, 16\)"),
        (lambda v: v[:0], r"has shape \(0, 16\)"),
        (lambda v: v[:, :5], r"has shape \(3, 5\)"),
        (lambda v: np.stack([v, v]), r"has shape \(2, 3, 16\)"),
        (lambda v: np.where(np.arange(3)[:, None] == 2, np.float32("nan"), v), "not finite"),
        (lambda v: v * np.float32([[1], [1], [0]]), "no direction"),
    ],
)
async def test_windows_of_a_wrong_shape_are_refused_with_all_that_came_with_them(
    index: VectorIndex, point: Build, direction: Direction, spoil: Callable[[np.ndarray], np.ndarray], words: str
) -> None:
    bad = spoil(rows(direction, 1, 2, 3)).astype(np.float32)
    with pytest.raises(ValueError, match=words):
        await index.upsert([point(0), point(1, vectors=bad)])
    assert await index.count() == 0


async def test_more_windows_than_one_request_takes_are_all_written(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert(
        [point(seed, vectors=rows(direction, *range(seed * 100, seed * 100 + 32))) for seed in range(1, 40)]
    )
    for seed in (1, 20, 39):
        [hit] = await index.search(direction(seed * 100 + 31), Filter(ALICE), 1)
        assert (hit.id, hit.score) == (point(seed).id, pytest.approx(1, abs=1e-5))


async def test_windows_are_there_after_the_index_was_opened_again(store, point: Build, direction: Direction) -> None:
    first = store.index()
    await first.upsert([point(seed) for seed in range(200)])
    await first.upsert(
        [point(1, vectors=rows(direction, 1, 8_000)), point(2, vectors=rows(direction, 2, 8_001, 8_002))]
    )
    await first.close()
    second = store.index()
    for seed, id_ in ((8_000, point(1).id), (8_002, point(2).id), (2, point(2).id)):
        [hit] = await second.search(direction(seed), Filter(ALICE), 1)
        assert (hit.id, hit.score) == (id_, pytest.approx(1, abs=1e-5))
    await second.close()

"""What every `VectorIndex` promises, held against each of them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import replace
from uuid import UUID

import numpy as np
import pytest

from openmemory.access.rules import EVERYTHING, RuleObjects, Rules
from openmemory.index.collections import reserved_vector
from openmemory.index.conditions import MAX_LABELS
from openmemory.index.entries import IndexEntry
from openmemory.index.port import NO_WORDS, NOBODY, Filter, IndexUnavailable, Point, Vector, VectorIndex, Watermark
from tests.index.conftest import DIMENSION, Store, sparse_of

ALICE, BOB = UUID(int=1), UUID(int=99)

Build = Callable[..., Point]
Direction = Callable[..., Vector]


async def listed(index: VectorIndex, user: UUID | None = None, *, page: int = 2_000) -> list[list[IndexEntry]]:
    return [list(entries) async for entries in index.entries(user, page=page)]


async def test_a_point_is_found_as_soon_as_it_is_acknowledged(index: VectorIndex, point: Build) -> None:
    for seed in range(30):
        await index.upsert([point(seed)])
        hits = await index.search(point(seed).vectors[0], Filter(ALICE), 1)
        assert [hit.id for hit in hits] == [point(seed).id]


async def test_hits_come_best_first_with_their_cosine(index: VectorIndex, point: Build, direction: Direction) -> None:
    points = [point(seed) for seed in range(400)]
    await index.upsert(points)
    query = direction(7_000)
    expected = sorted(((float(it.vectors[0] @ query), it.id) for it in points), reverse=True)[:10]

    hits = await index.search(query, Filter(ALICE), 10)

    assert [hit.id for hit in hits] == [id for _, id in expected]
    assert [hit.score for hit in hits] == pytest.approx([score for score, _ in expected], abs=1e-5)


async def test_scores_stay_within_minus_one_and_one(index: VectorIndex, point: Build, direction: Direction) -> None:
    await index.upsert([point(seed, vector=direction(seed % 2) * (1 - 2 * (seed % 3 == 0))) for seed in range(60)])
    for seed in range(2):
        hits = await index.search(direction(seed), Filter(ALICE), 60)
        assert len(hits) == 60
        assert all(-1.0 <= hit.score <= 1.0 for hit in hits)


async def test_the_same_id_replaces(index: VectorIndex, point: Build, direction: Direction) -> None:
    await index.upsert([point(1), point(2)])
    await index.upsert([point(1, vector=direction(50), user=BOB, namespace="work", revision=2)])

    assert await index.count() == 2
    assert [hit.id for hit in await index.search(direction(1), Filter(ALICE), 10)] == [point(2).id]
    [hit] = await index.search(direction(50), Filter(BOB, namespaces=("work",)), 10)
    assert hit.score == pytest.approx(1.0, abs=1e-5)
    assert await listed(index, BOB) == [[IndexEntry(point(1).id, BOB, 2)]]


async def test_a_vector_may_be_replaced_by_one_that_is_not_writable_or_not_contiguous(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    stored = np.frombuffer(direction(3).tobytes(), dtype="<f4")
    strided = np.stack([direction(4), direction(5)], axis=1)[:, 0]
    await index.upsert([point(1, vector=stored), point(2, vector=strided)])
    assert [hit.id for hit in await index.search(stored, Filter(ALICE), 1)] == [point(1).id]
    assert [hit.id for hit in await index.search(strided, Filter(ALICE), 1)] == [point(2).id]


async def test_nobody_finds_the_points_of_another_user(index: VectorIndex, point: Build, direction: Direction) -> None:
    await index.upsert([point(seed, user=BOB if seed % 4 == 0 else ALICE) for seed in range(200)])
    for user, mine in ((ALICE, 150), (BOB, 50), (UUID(int=5), 0)):
        hits = await index.search(direction(0), Filter(user), 1_000)
        assert len(hits) == mine
        assert all((hit.id.int - 1) % 4 == 0 for hit in hits) is (user != ALICE)
        assert await index.count(user) == mine


async def test_filters_take_any_of_their_values_and_all_of_them_must_hold(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    apps = [UUID(int=10 + number) for number in range(3)]
    points = [
        point(seed, namespace=f"n{seed % 3}", kind=("memory", "chunk")[seed % 2], app=apps[seed % 3])
        for seed in range(12)
    ]
    await index.upsert(points)

    async def found(where: Filter) -> set[int]:
        return {hit.id.int - 1 for hit in await index.search(direction(0), where, 100)}

    every = set(range(12))
    assert await found(Filter(ALICE)) == every
    assert await found(Filter(ALICE, namespaces=("n0",))) == {seed for seed in every if seed % 3 == 0}
    many = "n0", *(f"elsewhere {number}" for number in range(MAX_LABELS))
    assert await found(Filter(ALICE, namespaces=many)) == {seed for seed in every if seed % 3 == 0}
    assert await found(Filter(ALICE, namespaces=many[:MAX_LABELS])) == {seed for seed in every if seed % 3 == 0}
    assert await found(Filter(ALICE, namespaces=("n0", "n2"))) == {seed for seed in every if seed % 3 != 1}
    assert await found(Filter(ALICE, kinds=("chunk",))) == {seed for seed in every if seed % 2}
    assert await found(Filter(ALICE, apps=(apps[1], apps[2]))) == {seed for seed in every if seed % 3}
    assert await found(Filter(ALICE, namespaces=("n1",), kinds=("memory",), apps=(apps[1],))) == {4, 10}
    assert await found(Filter(ALICE, namespaces=("n1",), apps=(apps[0],))) == set()
    assert await found(Filter(BOB, namespaces=("n0",))) == set()


async def test_points_are_found_by_words_whatever_their_vectors(index: VectorIndex, point: Build) -> None:
    last = 2**32 - 1
    await index.upsert([
        point(1, words={5: 1.0, 9: 0.5}),
        point(2, words={5: 0.25, last: 2.0}),
        point(3),
        point(4, words={5: 9.0}, user=BOB),
        point(5, words={9: 3.0}, namespace="work"),
    ])  # fmt: skip
    query = sparse_of({last: 1.0, 5: 2.0, 77: 4.0})

    said = await index.search_words(query, Filter(ALICE), 10)
    assert [(hit.id, hit.score) for hit in said] == [(point(2).id, 2.5), (point(1).id, 2.0)]
    assert await index.search_words(query, Filter(ALICE), 1) == said[:1]
    nine = sparse_of({9: 1.0})
    assert len(await index.search_words(nine, Filter(ALICE), 10)) == 2
    [only] = await index.search_words(nine, Filter(ALICE, namespaces=("work",)), 10)
    assert only.id == point(5).id
    denied = Rules(denied=RuleObjects(namespaces=frozenset({"work"})))
    for where in (
        Filter(ALICE, rules=denied),
        Filter(ALICE, excluded=(point(5).id,)),
        Filter(ALICE, ids=(point(1).id,)),
    ):
        assert [hit.id for hit in await index.search_words(nine, where, 10)] == [point(1).id]
    for where, limit in ((Filter(ALICE), 0), (Filter(ALICE, ids=()), 5), (Filter(UUID(int=5)), 5)):
        assert await index.search_words(query, where, limit) == []
    assert await index.search_words(NO_WORDS, Filter(ALICE), 5) == []


async def test_words_are_replaced_removed_and_kept_with_their_point(store: Store, point: Build) -> None:
    index = store.index()
    await index.upsert([point(1, words={5: 1.0}), point(2, words={5: 2.0}), point(3, words={5: 3.0})])
    await index.upsert([point(1, words={6: 1.0})])
    await index.delete([point(3).id])
    await index.close()

    index = store.index()
    for word, seed in ((5, 2), (6, 1)):
        said = await index.search_words(sparse_of({word: 1.0}), Filter(ALICE), 9)
        assert [hit.id for hit in said] == [point(seed).id]
    await index.close()


async def test_a_thousand_points_rank_by_the_product_of_their_words(index: VectorIndex, point: Build) -> None:
    chance = np.random.default_rng(4)

    def some(many: int) -> dict[int, float]:
        words = chance.choice(300, many, replace=False).tolist()
        return dict(zip(words, chance.random(many).tolist(), strict=True))

    texts = [some(8) for _ in range(1000)]
    await index.upsert([point(seed, words=words) for seed, words in enumerate(texts)])
    for _ in range(20):
        query = some(5)
        scores = [sum(weight * words.get(word, 0.0) for word, weight in query.items()) for words in texts]
        best = sorted((score for score in scores if score > 0), reverse=True)[:20]
        hits = await index.search_words(sparse_of(query), Filter(ALICE), 20)
        assert [hit.score for hit in hits] == pytest.approx(best, rel=1e-4)
        assert [scores[hit.id.int - 1] for hit in hits] == pytest.approx(best, rel=1e-4)


async def test_namespaces_are_compared_literally(index: VectorIndex, point: Build, direction: Direction) -> None:
    names = ["a b", "A B", "ä", "*", "", "a.b[]", 'quote"s', "x" * 256]
    await index.upsert([point(seed, namespace=name) for seed, name in enumerate(names)])
    for seed, name in enumerate(names):
        hits = await index.search(direction(0), Filter(ALICE, namespaces=(name,)), 10)
        assert [hit.id for hit in hits] == [point(seed).id]


async def test_excluded_points_never_take_a_place(index: VectorIndex, point: Build, direction: Direction) -> None:
    await index.upsert([point(seed) for seed in range(100)])
    best = [hit.id for hit in await index.search(direction(0), Filter(ALICE), 20)]

    hits = await index.search(direction(0), Filter(ALICE, excluded=tuple(best[:10])), 10)

    assert [hit.id for hit in hits] == best[10:]
    unknown = (UUID(int=10**9),)
    assert [hit.id for hit in await index.search(direction(0), Filter(ALICE, excluded=unknown), 20)] == best


async def test_only_listed_points_are_found_however_far_they_are(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(seed, user=BOB if seed == 7 else ALICE) for seed in range(100)])
    ranked = [hit.id for hit in await index.search(direction(0), Filter(ALICE), 100)]
    listed = (ranked[-1], ranked[50], UUID(int=10**9), point(7).id)

    async def found(where: Filter, limit: int = 10) -> list[UUID]:
        return [hit.id for hit in await index.search(direction(0), where, limit)]

    assert await found(Filter(ALICE, ids=listed)) == [ranked[50], ranked[-1]]
    assert await found(Filter(ALICE, ids=listed), 1) == [ranked[50]]
    assert await found(Filter(ALICE, ids=listed, excluded=(ranked[50],))) == [ranked[-1]]
    assert await found(Filter(ALICE, ids=listed, namespaces=("elsewhere",))) == []
    assert await found(Filter(ALICE, ids=())) == []


@pytest.mark.slow
async def test_rules_let_through_what_they_do_in_plain_code(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    apps, categories = [UUID(int=10 + number) for number in range(4)], [UUID(int=50 + number) for number in range(3)]
    chance = random.Random(3)
    points = [
        point(
            seed,
            namespace=f"n{chance.randrange(40)}",
            app=chance.choice(apps),
            filed=chance.sample(categories, chance.randrange(3)),
        )
        for seed in range(150)
    ]
    await index.upsert(points)

    def some_objects() -> RuleObjects:
        return RuleObjects(
            memories=frozenset(it.id for it in chance.sample(points, chance.choice([0, 0, 5, 60]))),
            apps=frozenset(chance.sample(apps, chance.choice([0, 0, 1, 2]))),
            namespaces=frozenset(f"n{number}" for number in chance.sample(range(60), chance.choice([0, 0, 2, 30]))),
            categories=frozenset(chance.sample(categories, chance.choice([0, 0, 1]))),
        )

    def holds(objects: RuleObjects, it: Point) -> bool:
        named = it.id in objects.memories or it.app in objects.apps or it.namespace in objects.namespaces
        return objects.everything or named or not objects.categories.isdisjoint(it.categories)

    sizes = set()
    for _ in range(80):
        denied, allowed, hidden, shared = (some_objects() for _ in range(4))
        rules = Rules(denied, allowed, hidden, shared if chance.random() < 0.6 else EVERYTHING)
        expected = {
            it.id
            for it in points
            if not holds(rules.denied, it)
            and (holds(rules.allowed, it) or (holds(rules.shared, it) and not holds(rules.hidden, it)))
        }
        assert not (rules.smallest().nothing and expected)
        where = Filter(ALICE, rules=rules)
        assert {hit.id for hit in await index.search(direction(0), where, 500)} == expected, rules
        best = await index.search(direction(0), where, 3)
        all_of_them = await index.search(direction(0), Filter(ALICE), 500)
        assert [hit.id for hit in best] == [hit.id for hit in all_of_them if hit.id in expected][:3]
        sizes.add(len(expected))
    assert len(sizes) > 20


async def test_rules_and_filters_hold_together_and_reach_no_other_user(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(seed, user=BOB if seed % 2 else ALICE, namespace=f"n{seed % 5}") for seed in range(50)])
    everything = Filter(ALICE, rules=Rules(shared=RuleObjects(namespaces=frozenset({"n0", "n1", "n2"}))))
    found = {hit.id.int - 1 for hit in await index.search(direction(0), everything, 100)}
    assert found == {seed for seed in range(0, 50, 2) if seed % 5 in (0, 1, 2)}
    narrower = replace(everything, namespaces=("n1", "n4"), excluded=(point(6).id,))
    found = {hit.id.int - 1 for hit in await index.search(direction(0), narrower, 100)}
    assert found == {16, 26, 36, 46}


async def test_a_point_filed_otherwise_is_let_through_otherwise(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    health = UUID(int=50)
    where = Filter(ALICE, rules=Rules(denied=RuleObjects(categories=frozenset({health}))))
    await index.upsert([point(1, filed=(health,)), point(2)])
    assert [hit.id for hit in await index.search(direction(1), where, 10)] == [point(2).id]
    await index.upsert([point(1), point(2, filed=(UUID(int=51), health))])
    assert [hit.id for hit in await index.search(direction(1), where, 10)] == [point(1).id]


async def test_a_limit_is_the_most_that_is_returned(index: VectorIndex, point: Build, direction: Direction) -> None:
    await index.upsert([point(seed) for seed in range(5)])
    assert [len(await index.search(direction(0), Filter(ALICE), limit)) for limit in (0, 1, 5, 1_000)] == [0, 1, 5, 5]


async def test_deleted_points_are_gone_and_unknown_ids_are_fine(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(seed) for seed in range(10)])
    await index.delete([point(3).id, UUID(int=10**9), point(4).id])
    await index.delete([point(3).id])
    await index.delete([])

    left = {point(seed).id for seed in range(10)} - {point(3).id, point(4).id}
    assert {hit.id for hit in await index.search(direction(3), Filter(ALICE), 100)} == left
    assert {entry.id for page in await listed(index) for entry in page} == left
    assert await index.count() == 8
    await index.upsert([point(3)])
    assert await index.count() == 9


async def test_entries_stream_in_ascending_order_without_gaps_or_repeats(index: VectorIndex, point: Build) -> None:
    ids = [UUID(int=number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % 2**128) for number in range(1, 301)]
    await index.upsert([point(n, id=id, revision=n, user=BOB if n % 3 == 0 else ALICE) for n, id in enumerate(ids)])
    everything = sorted(
        (IndexEntry(id, BOB if n % 3 == 0 else ALICE, n) for n, id in enumerate(ids)), key=lambda entry: entry.id
    )

    for user, page in ((None, 64), (None, 300), (None, 5_000), (ALICE, 50), (BOB, 1)):
        pages = await listed(index, user, page=page)
        assert all(0 < len(entries) <= page for entries in pages)
        expected = [entry for entry in everything if user in (None, entry.user)]
        assert [entry for entries in pages for entry in entries] == expected


async def test_a_listing_goes_on_while_points_come_and_go(index: VectorIndex, point: Build) -> None:
    await index.upsert([point(seed) for seed in range(0, 200, 2)])
    seen: list[int] = []
    async for entries in index.entries(page=10):
        seen += [entry.id.int - 1 for entry in entries]
        await index.delete([point(seen[-1]).id, point(seen[-1] + 2).id])
        await index.upsert([point(seen[0] + 1), point(199)])
    assert seen == sorted(set(seen))
    assert seen[-1] == 199


async def test_an_empty_index_answers_with_nothing(index: VectorIndex, direction: Direction) -> None:
    assert await index.search(direction(0), Filter(ALICE), 10) == []
    assert await listed(index) == []
    assert await index.count() == await index.count(ALICE) == 0
    await index.upsert([])
    assert await index.count() == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda v: np.where(np.arange(len(v)) == 3, np.float32("nan"), v), "not finite"),
        (lambda v: np.where(np.arange(len(v)) == 3, np.float32("inf"), v), "not finite"),
        (lambda v: v * np.float32(1e30), "not finite"),
        (lambda v: v * np.float32(0), "no direction"),
        (lambda v: v[:-1], r"has shape .*15.*; the collection takes .*16"),
    ],
)
async def test_a_vector_that_could_never_be_found_is_refused_with_all_that_came_with_it(
    index: VectorIndex, point: Build, direction: Direction, spoil: Callable[[Vector], Vector], words: str
) -> None:
    bad = spoil(direction(1)).astype(np.float32)
    with pytest.raises(ValueError, match=words):
        await index.upsert([point(0), point(1, vector=bad)])
    assert await index.count() == 0
    with pytest.raises(ValueError, match=words):
        await index.search(bad, Filter(ALICE), 10)


async def test_concurrent_writers_lose_nothing(index: VectorIndex, point: Build, direction: Direction) -> None:
    async def write(writer: int) -> None:
        for step in range(6):
            start = writer * 1_000 + step * 20
            await index.upsert([point(seed) for seed in range(start, start + 20)])
            await index.delete([point(start).id])

    async def read() -> None:
        for seed in range(20):
            hits = await index.search(direction(seed), Filter(ALICE), 5)
            assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)

    await asyncio.gather(*(write(writer) for writer in range(4)), *(read() for _ in range(3)))

    assert await index.count() == 4 * 6 * 19
    ids = [entry.id.int - 1 for page in await listed(index) for entry in page]
    assert ids == sorted(w * 1_000 + s for w in range(4) for s in range(120) if s % 20)


async def test_what_was_written_is_there_after_closing_and_opening_again(
    store: object, point: Build, direction: Direction
) -> None:
    first: VectorIndex = store.index()  # type: ignore[attr-defined]
    await first.open()
    await first.upsert([point(seed, revision=seed) for seed in range(300)])
    await first.delete([point(0).id])
    await first.close()

    second: VectorIndex = store.index()  # type: ignore[attr-defined]
    await second.open()
    await second.open()
    try:
        assert await second.count(ALICE) == 299
        assert (await listed(second))[0][0] == IndexEntry(point(1).id, ALICE, 1)
        assert [hit.id for hit in await second.search(direction(250), Filter(ALICE), 1)] == [point(250).id]
        await second.upsert([replace(point(250), revision=7)])
        assert await second.count() == 299
    finally:
        await second.close()


async def test_the_status_names_the_collection_and_counts(index: VectorIndex, point: Build) -> None:
    await index.upsert([point(seed) for seed in range(3)])
    await index.flush()
    status = await index.status()
    assert status.points == 3
    assert status.dimension == 16
    assert status.collection.endswith("__model__16__words-scope")
    assert status.engine in ("qdrant", "qdrant-edge")
    assert status.version[0].isdigit()


async def test_a_closed_index_is_unavailable_and_may_be_closed_again(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(1)])
    await asyncio.gather(index.close(), index.close())
    await index.close()
    for call in (
        index.open(),
        index.upsert([point(1)]),
        index.delete([point(1).id]),
        index.search(direction(1), Filter(ALICE), 1),
        index.count(),
        index.flush(),
        index.status(),
        listed(index),
    ):
        with pytest.raises(IndexUnavailable):
            await call


async def test_closing_lets_what_was_accepted_finish_or_says_that_it_did_not(
    index: VectorIndex, point: Build, direction: Direction
) -> None:
    await index.upsert([point(seed) for seed in range(100)])
    searches = [asyncio.ensure_future(index.search(direction(seed), Filter(ALICE), 5)) for seed in range(50)]
    writes = [asyncio.ensure_future(index.upsert([point(seed)])) for seed in range(100, 120)]
    await asyncio.sleep(0)
    await index.close()
    for outcome in await asyncio.gather(*searches, *writes, return_exceptions=True):
        assert outcome is None or isinstance(outcome, list | IndexUnavailable)


async def test_the_watermark_is_kept_and_is_no_point(index: VectorIndex, point: Build, store: Store) -> None:
    assert await index.watermark() is None
    await index.upsert([point(1), point(2)])
    for sequence in (7, 8):
        await index.set_watermark(Watermark(UUID(int=5), sequence))
    assert await index.count() == 2
    assert [entry.id for page in await listed(index, page=1) for entry in page] == [point(1).id, point(2).id]
    assert await index.search(reserved_vector(DIMENSION), Filter(NOBODY), 10) == []
    await index.delete([point(1).id])
    await index.close()
    again = store.index()
    assert await again.watermark() == Watermark(UUID(int=5), 8)
    await again.close()


async def test_an_index_tells_the_watermark_before_it_answers_and_writes_where_it_is_to_begin(store: Store) -> None:
    told: list[Watermark | None] = []
    beginning = Watermark(UUID(int=5), 3)

    async def connected(held: Watermark | None) -> Watermark | None:
        told.append(held)
        return beginning if held is None else None

    for _ in range(2):
        index = store.index(on_connected=connected)
        assert await index.watermark() == beginning
        await index.close()
    assert told == [None, beginning]

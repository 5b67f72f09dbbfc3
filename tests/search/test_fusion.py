from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.index.port import Hit
from openmemory.search.fusion import (
    DENSE_WEIGHT,
    HALF_WEIGHT_SIZE,
    dense_share,
    fuse,
    relevant,
)
from openmemory.search.lexical import LexicalHit

A, B, C, D = (UUID(int=number) for number in range(1, 5))


def dense(**scores: float) -> list[Hit]:
    return [Hit(globals()[name], score) for name, score in scores.items()]


def lexical(**scores: float) -> list[LexicalHit]:
    return [LexicalHit(globals()[name], score, ("word",)) for name, score in scores.items()]


def ids(results: list) -> list[UUID]:
    return [result.id for result in results]


# Scores that differ by less than rounding are equal when they have been normalised, and then their ids decide.
scores_apart = st.floats(0.001, 50).map(lambda score: round(score, 6))
arms = st.dictionaries(st.sampled_from([UUID(int=number) for number in range(12)]), scores_apart, max_size=12)


def ranked(scores: dict[UUID, float]) -> list[tuple[UUID, float]]:
    return sorted(scores.items(), key=lambda item: -item[1])


def test_the_parts_are_the_formula_of_the_docstring():
    # A: 0.7 * 4/4 + 0.3 * (0.5 - 0.3) / (0.8 - 0.3); B: 0.7 * 1/4 + 0.3 * 1; C: dense minimum; D: words only.
    results = {r.id: r for r in fuse(dense(B=0.8, A=0.5, C=0.3), lexical(A=4.0, D=2.0, B=1.0), weight=0.3)}
    assert results[A].score == pytest.approx(0.7 + 0.12)
    assert results[B].score == pytest.approx(0.175 + 0.3)
    assert results[C].score == 0
    assert results[D].score == pytest.approx(0.35)
    assert (results[A].lexical, results[A].dense) == (pytest.approx(0.7), pytest.approx(0.12))
    assert (results[C].bm25, results[C].cosine) == (None, 0.3)
    assert (results[D].bm25, results[D].cosine) == (2.0, None)


def test_a_memory_that_both_arms_put_first_is_first_with_a_score_of_one():
    best = fuse(dense(A=0.9, B=0.1), lexical(A=7.0, C=6.9))[0]
    assert best.id == A
    assert best.score == pytest.approx(1)


def test_the_dense_arm_decides_between_memories_that_say_the_same_words():
    assert ids(fuse(dense(B=0.6, A=0.2, C=0.1), lexical(A=3.0, B=3.0)))[:2] == [B, A]


def test_the_words_of_a_memory_without_a_vector_stand_for_its_meaning():
    results = {r.id: r for r in fuse(dense(A=0.2, B=0.1), lexical(D=4.0, A=1.0), weight=0.6, complete=True)}
    assert (results[D].score, results[D].lexical, results[D].dense) == pytest.approx((1.0, 0.4, 0.6))
    assert results[A].score == pytest.approx(0.4 / 4 + 0.6)
    assert {id_ for id_, result in results.items() if result.without_vector} == {D}
    cut = {r.id: r for r in fuse(dense(A=0.2, B=0.1), lexical(D=4.0, A=1.0), weight=0.6)}
    assert cut[D].score == pytest.approx(0.4), "it may be beyond the end of the list"
    assert not cut[D].without_vector
    waits = {r.id: r for r in fuse(dense(A=0.2, B=0.1), lexical(D=4.0, C=2.0, A=1.0), weight=0.6, waiting={D, A})}
    assert (waits[D].score, waits[C].score, waits[A].score) == pytest.approx((1.0, 0.2, 0.4 / 4 + 0.6))
    assert [r.score for r in fuse([], lexical(D=4.0, A=1.0), complete=True)] == [1.0, 0.25]


def test_the_share_of_the_dense_arm_grows_with_its_list():
    words, vectors = lexical(A=5.0, B=4.0, C=3.0), dense(A=0.5, B=0.4, C=0.3)
    assert dense_share(vectors[:HALF_WEIGHT_SIZE], words) == pytest.approx(DENSE_WEIGHT / 2)
    assert dense_share(vectors, words) == pytest.approx(DENSE_WEIGHT * 3 / (3 + HALF_WEIGHT_SIZE))
    assert (dense_share([], words), dense_share(vectors, [])) == (0, 1)


def test_the_only_vector_does_not_outvote_the_words():
    assert ids(fuse(dense(B=0.9), lexical(A=0.1))) == [A, B]


@pytest.mark.parametrize("empty", ["dense", "lexical"])
@given(scores=arms)
def test_with_one_arm_empty_the_order_is_that_of_the_other(empty: str, scores: dict[UUID, float]):
    order = ranked(scores)
    if empty == "dense":
        results = fuse([], [LexicalHit(id_, score, ()) for id_, score in order])
    else:
        results = fuse([Hit(id_, score) for id_, score in order], [])
    assert ids(results) == [id_ for id_, _ in order]
    assert not order or results[0].score == pytest.approx(1)


def test_nothing_found_is_an_empty_list():
    assert fuse([], []) == []


@given(scores=arms, level=st.floats(-1, 1))
def test_equal_cosines_leave_the_order_of_the_words(scores: dict[UUID, float], level: float):
    order = ranked(scores)
    results = fuse([Hit(id_, level) for id_, _ in order], [LexicalHit(id_, score, ()) for id_, score in order])
    assert ids(results) == [id_ for id_, _ in order]


@given(near=arms)
def test_equal_words_leave_the_order_of_the_vectors(near: dict[UUID, float]):
    order = ranked(near)
    results = fuse([Hit(id_, score) for id_, score in order], [LexicalHit(id_, 2.5, ()) for id_, _ in reversed(order)])
    assert [near[result.id] for result in results] == [score for _, score in order]


@given(near=arms, words=arms, offset=st.sampled_from([-0.5, 0.0, 0.7]), scale=st.sampled_from([0.1, 1.0]))
def test_scores_do_not_depend_on_the_range_of_a_models_cosines(
    near: dict[UUID, float], words: dict[UUID, float], offset: float, scale: float
):
    hits = [LexicalHit(id_, score, ()) for id_, score in ranked(words)]
    plain = {r.id: r.score for r in fuse([Hit(id_, score) for id_, score in ranked(near)], hits)}
    moved = {r.id: r.score for r in fuse([Hit(id_, offset + scale * s) for id_, s in ranked(near)], hits)}
    assert moved == pytest.approx(plain, abs=1e-6)


@given(near=arms, words=arms)
def test_every_hit_appears_once_in_order_with_a_score_from_0_to_1_that_is_the_sum_of_its_parts(
    near: dict[UUID, float], words: dict[UUID, float]
):
    results = fuse(
        [Hit(id_, score) for id_, score in ranked(near)], [LexicalHit(id_, score, ()) for id_, score in ranked(words)]
    )
    assert sorted(ids(results)) == sorted(near.keys() | words.keys())
    assert [r.score for r in results] == sorted((r.score for r in results), reverse=True)
    assert all(0 <= r.score <= 1 + 1e-9 and r.score == r.lexical + r.dense for r in results)


@pytest.mark.parametrize(("weight", "first"), [(0.0, A), (1.0, B)])
def test_a_weight_at_its_bound_silences_an_arm(weight: float, first: UUID):
    assert ids(fuse(dense(B=0.9, A=0.1), lexical(A=2.0, B=1.0), weight=weight))[0] == first


@pytest.mark.parametrize("weight", [-0.1, 1.1, float("nan")])
def test_a_weight_out_of_bounds_is_refused(weight: float):
    with pytest.raises(ValueError, match="weight"):
        fuse([], [], weight=weight)


def test_what_holds_no_word_and_is_not_near_is_dropped():
    hits = fuse(dense(A=0.5, B=0.3, C=0.1), lexical(C=1.0))
    assert set(ids(relevant(hits, 0.3))) == {A, B, C}
    assert set(ids(relevant(hits, 0.31))) == {A, C}
    assert relevant(hits, None) == hits

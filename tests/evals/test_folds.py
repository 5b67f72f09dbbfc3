"""What of a figure is chance."""

from __future__ import annotations

import pytest

from benchmarks.ablations import ABLATIONS
from benchmarks.collections import Question
from benchmarks.folds import FOLDS, difference, folds, spread


def question(number: int, namespace: str) -> Question:
    return Question(f"q{number}", "?", namespace, "", frozenset({"d"}))


def test_each_conversation_is_a_fold():
    assert folds([question(n, name) for n, name in enumerate("abab")]) == [[0, 2], [1, 3]]


def test_questions_of_one_namespace_are_dealt_out_alike_every_time():
    questions = [question(n, "one") for n in range(12)]
    split = folds(questions)
    assert len(split) == FOLDS
    assert sorted(place for fold in split for place in fold) == list(range(12))
    assert split == folds(questions)


def test_the_spread_is_that_of_the_folds_means():
    means, deviation = spread([1.0, 0.0, 1.0, 1.0], [[0, 1], [2, 3]])
    assert means == [0.5, 1.0]
    assert deviation == pytest.approx(0.3536, abs=1e-4)


def test_a_difference_is_paired():
    assert difference([0.2, 0.4], [0.1, 0.3]) == pytest.approx((0.1, 0.1, 0.1))


@pytest.mark.parametrize("name", ABLATIONS)
def test_an_ablation_is_undone_afterwards(name: str):
    from openmemory.index.engine import index
    from openmemory.search import service
    from openmemory.search.candidates import query_analysis, retrieval
    from openmemory.search.ranking import late_interaction, linear_model

    def ingredients() -> tuple[object, ...]:
        return (query_analysis.MAX_QUERY_WORDS, retrieval.is_served_by_index, service.names_a_time,
                service.late_scores, linear_model.TOKENS, linear_model.VECTORS, linear_model.WORDS,
                late_interaction.CONTEXT, index.best)  # fmt: skip

    before = ingredients()
    with ABLATIONS[name]():
        pass
    assert all(one is other for one, other in zip(ingredients(), before, strict=True))

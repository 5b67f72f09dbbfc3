"""Scores that mean the same in every search."""

from __future__ import annotations

import math
from uuid import uuid4

import pytest

from openmemory.embeddings.port import PACKAGED
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.calibration import EVIDENCE_HITS, WITH_COSINES, WORDS_ALONE, calibration
from openmemory.search.fusion import Fused, relevant
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services

TEXTS = [
    "My tax adviser is called Brandt",
    "I am allergic to peanuts",
    "The staging server runs on port 8443",
    "Anna plays the violin in an amateur orchestra",
    "We deploy the webshop on Tuesdays",
]


def hit(score: float = 1.0, cosine: float | None = None, coverage: float = 0.0) -> Fused:
    return Fused(uuid4(), score, 0.0, score, 1.0 if coverage else None, cosine, coverage=coverage)


@pytest.mark.parametrize("model", [PACKAGED, "another"])
def test_a_better_place_never_has_a_lower_score(model: str):
    found = calibration([hit(1.0, 0.4, 0.3), hit(0.7, 0.3)], model)
    scores = [found.of(step / 100) for step in range(101)]
    assert scores == sorted(scores)
    assert all(0 < score < 1 for score in scores)


def test_the_best_result_scores_more_the_more_evidence_there_is():
    weak, near, covered = (
        calibration([hit(1.0, *evidence)], PACKAGED).of(1.0) for evidence in ((0.27,), (0.7,), (0.7, 0.5))
    )
    assert weak < 0.15 < 0.4 < near < covered


def test_cosines_of_other_models_do_not_count():
    for cosine in (0.2, 0.9):
        found = calibration([hit(1.0, cosine, 0.4)], "another")
        assert (found.weights, found.cosine) == (WORDS_ALONE, None)
    assert calibration([hit(1.0, None, 0.4)], PACKAGED).weights is WORDS_ALONE


def test_cosines_of_other_memories_do_not_speak_for_a_first_hit_without_a_vector():
    new, far = hit(1.0, None, 0.5), hit(0.5, 0.1)
    assert new.without_vector
    found = calibration([new, far], PACKAGED)
    assert (found.weights, found.cosine) == (WORDS_ALONE, None)
    assert calibration([hit(1.0, 0.1, 0.5), hit(0.5, None, 0.5)], PACKAGED).weights is WITH_COSINES[PACKAGED]


def test_only_the_first_hits_are_evidence():
    hits = [hit(1 - n / 100, 0.3) for n in range(EVIDENCE_HITS)]
    assert calibration([*hits, hit(0.1, 0.9, 0.9)], PACKAGED) == calibration(hits, PACKAGED)
    assert calibration(hits, PACKAGED).weights is WITH_COSINES[PACKAGED]


def test_a_hit_without_a_word_and_without_a_score_is_none():
    words, near, far = hit(0.0, None, 0.2), hit(0.4, 0.1), hit(0.0, 0.05)
    assert relevant([near, words, far], None) == [near, words]


async def test_an_answer_scores_higher_than_the_least_bad_of_others(services: Services, app_caller: Caller):
    await services.memories.add_many(app_caller, [MemoryCreate(text=text) for text in TEXTS])
    await services.outbox_delivery.drain()

    async def best(query: str) -> float:
        return (await services.search.search(app_caller, SearchQuery(query, explain=True))).results[0].score

    answered = [await best("which port does the staging server run on?"), await best("when do we deploy the webshop?")]
    unanswered = [await best("what is the address of my office?"), await best("who plays in the national team?")]
    assert min(answered) > 0.4 > 0.2 > max(unanswered)


async def test_an_explanation_says_how_a_score_follows(services: Services, app_caller: Caller):
    await services.memories.add_many(app_caller, [MemoryCreate(text=text) for text in TEXTS])
    await services.outbox_delivery.drain()
    answer = await services.search.search(app_caller, SearchQuery("staging server port", explain=True))
    formula = (answer.explanation.calibration or "").removeprefix("score = ")
    for result in answer.results:
        numbers = formula.replace("ranking", str(result.parts.ranking)).replace("·", "*")
        numbers = numbers.replace(" (coverage)", "").replace(" (cosine)", "")
        assert eval(numbers, {"exp": math.exp}) == pytest.approx(result.score, rel=1e-4)

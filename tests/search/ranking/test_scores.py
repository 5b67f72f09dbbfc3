"""Scores mean the same in every search."""

from __future__ import annotations

import random

import pytest

from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.search.ranking.linear_model import logit
from openmemory.search.ranking.weights import MIN_SCORE
from openmemory.search.schemas import Method, SearchQuery
from openmemory.services import Services

TEXTS = [
    "My tax adviser is called Brandt",
    "I am allergic to peanuts",
    "The staging server runs on port 8443",
    "Anna plays the violin in an amateur orchestra",
    "We deploy the webshop on Tuesdays",
]

SUBJECTS = ("garden", "invoice", "lighthouse", "guitar", "recipe", "meeting", "bicycle", "novel", "printer", "holiday")
DEEDS = ("was repaired", "is on the shelf", "needs a new part", "was lent to Tom", "got lost", "was praised by Eva")


async def stored(services: Services, caller: Caller, texts: list[str]) -> None:
    await services.memories.add_many(caller, [MemoryCreate(text=text) for text in texts])
    await services.outbox_delivery.drain()


async def scores(services: Services, caller: Caller, query: str) -> dict[str, float]:
    answer = await services.search.search(caller, SearchQuery(query, limit=100))
    return {result.memory: result.score for result in answer.results}


async def test_of_two_memories_the_right_one_scores_far_above_the_other(services: Services, owner: Caller):
    await stored(services, owner, ["I live in Hamburg.", "I like green tea."])
    questions = {
        "where do I live?": ("I live in Hamburg.", 0.2), "which tea do I like?": ("I like green tea.", 0.7),
    }  # fmt: skip
    for query, (right, least) in questions.items():
        found = await scores(services, owner, query)
        assert found[right] >= least, query
        assert all(score < 0.05 for text, score in found.items() if text != right), query


@pytest.mark.parametrize("query", ["what is my blood type?", "xqzt"])
async def test_what_nothing_answers_scores_next_to_nothing(services: Services, owner: Caller, query: str):
    await stored(services, owner, ["I live in Hamburg.", "I like green tea."])
    answer = await services.search.search(owner, SearchQuery(query))
    assert answer.search_method is Method.OVERVIEW or all(result.score < MIN_SCORE for result in answer.results)


@pytest.mark.slow
async def test_the_same_hit_scores_the_same_among_two_and_hundreds(services: Services, owner: Caller):
    chance = random.Random(3)
    queries = {"which port does the staging server run on?": TEXTS[2], "what am I allergic to?": TEXTS[1]}
    found: dict[str, list[float]] = {query: [] for query in queries}
    await stored(services, owner, TEXTS[1:3])
    for more in (0, 48, 250):
        others = {f"The {chance.choice(SUBJECTS)} {chance.choice(DEEDS)} {n}" for n in range(more)}
        if others:
            await stored(services, owner, sorted(others))
        for query, text in queries.items():
            found[query].append((await scores(services, owner, query))[text])
    for query, each in found.items():
        assert max(each) - min(each) <= 0.05, (query, each)


async def test_an_answer_scores_higher_than_the_least_bad_of_others(services: Services, app_caller: Caller):
    await stored(services, app_caller, TEXTS)

    async def best(query: str) -> float:
        return max((await scores(services, app_caller, query)).values(), default=0.0)

    answered = [await best("which port does the staging server run on?"), await best("when do we deploy the webshop?")]
    unanswered = [await best("what is the address of my office?"), await best("who plays in the national team?")]
    assert min(answered) > 0.4 > 0.2 > max(unanswered)


async def test_an_explanation_says_how_a_score_follows(services: Services, app_caller: Caller):
    await stored(services, app_caller, TEXTS)
    answer = await services.search.search(app_caller, SearchQuery("staging server port", explain=True))
    for result in answer.results:
        assert result.explanation is not None
        added = sum(term.adds for term in result.explanation.features)
        assert added == pytest.approx(logit(result.score), abs=1e-6)

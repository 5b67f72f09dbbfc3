"""Searches on a small collection of our own: identifiers, slips, dates, numbers, phrases, scripts and paraphrases."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from benchmarks.collections import mean, measured, read
from benchmarks.evaluation import Asked, store
from openmemory.identity.caller import Caller
from openmemory.services import Services

FLOORS = {
    "date": 1.0,
    "identifier": 1.0,
    "language": 1.0,
    "number": 1.0,
    "paraphrase": 0.7,
    "phrase": 1.0,
    "typo": 1.0,
}
"""Mean reciprocal ranks by category."""

ALL = 0.9
WORDS = 0.75
"""The same of all questions, and of all by words alone."""


async def test_searches_find_what_is_asked_for(services: Services, owner: Caller):
    collection = read(Path(__file__).parent / "collection")
    documents = await store(services, owner, collection.documents)
    asked = Asked(services, owner, collection, documents)
    ranks: dict[str, list[float]] = defaultdict(list)
    by_words = []
    for question in collection.questions:
        found = measured(asked.named(await asked.ours(question)), question.relevant)
        ranks[question.category].append(found["MRR@10"])
        words, _ = await asked.arms(question)
        by_words.append(measured(asked.named(words), question.relevant)["MRR@10"])
    means = {category: mean(values) for category, values in ranks.items()}
    assert means.keys() == FLOORS.keys()
    assert {category: value for category, value in means.items() if value < FLOORS[category]} == {}
    assert mean([value for values in ranks.values() for value in values]) >= ALL
    assert mean(by_words) >= WORDS

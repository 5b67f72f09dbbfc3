"""Describes the parts of the score of a search result."""

from __future__ import annotations

from typing import NamedTuple

from openmemory.search.schemas import ScoreParts

_NAMES = {
    "dense": "Meaning of the text",
    "late": "Meaning of each word",
    "lexical": "Words in common",
    "beside": "Other texts of the conversation",
    "text": "Who says it, and how",
    "time": "Written when the question says",
    "recency": "New",
    "named": "Names of the best result",
    "reranked": "Second look by the reranker",
}
"""The parts of a score, in words."""

_LEAST = 0.005
"""The smallest part that is shown."""


class ScoreBar(NamedTuple):
    """One part of a score: its name, what it adds, and its length as a share of the longest in per cent."""

    name: str
    adds: float
    length: float


def bars(parts: ScoreParts | None) -> list[ScoreBar]:
    """Returns the parts that raise a score, the largest first, and then what was taken off. An overview has
    none."""
    if parts is None:
        return []
    adds = [(name, getattr(parts, field)) for field, name in _NAMES.items()]
    rows = sorted((each for each in adds if each[1] >= _LEAST), key=lambda each: -each[1])
    if parts.penalty >= _LEAST:
        rows.append(("Taken off: it reads like orders to an assistant", -parts.penalty))
    longest = max((abs(value) for _, value in rows), default=1.0)
    return [ScoreBar(name, value, 100 * abs(value) / longest) for name, value in rows]

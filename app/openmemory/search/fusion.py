"""Fuses the dense and the lexical ranking into one, with pure functions."""

from __future__ import annotations

from collections.abc import Container, Sequence
from operator import attrgetter
from typing import NamedTuple
from uuid import UUID

from openmemory.index.port import Hit
from openmemory.search.lexical import LexicalHit

DENSE_WEIGHT = 0.6
"""The share of the dense arm in a fused score if its list is long. From 0.54 to 0.64, no collection of the evaluation
gains or loses more than chance."""

HALF_WEIGHT_SIZE = 2
"""The list length at which the dense arm has half its share. Some vector is always the nearest, whatever it says, while
a matching word is a fact. A memory that was just stored has no vector yet."""

FLAGGED_SHARE = 0.25
"""The share of its score that a memory flagged as a prompt injection keeps. The label is a guess, so such a memory can
still be found. But one that is stuffed with the words of a question gets a quarter of the best score, and ranks first
only if no other memory is a quarter as near."""


class Fused(NamedTuple):
    """One result. `score` is in [0, 1]; it is the sum of its parts, less the `penalty`.

    `bm25` and `cosine` are the original scores of the arms, None if an arm did not list the memory. `beside` is the
    score from neighbours in its thread (see `search.threads`), and `time` from a time that the query names (see
    `search.recency`). `scale` is the product of the factors applied to all of these, so that no score is above 1.
    `late` is the score from the tokens of the question (see `search.late_interaction`). `recency` is the score for
    being new, and `reranked` that of a second stage (see `openmemory.search.reranking`); both are off unless they are
    configured. `importance` counts in an overview only (see `search.overview`). `coverage` is that of the lexical
    hit. `named` is the score from the names in the best hit (see `search.names`).
    """

    id: UUID
    score: float
    lexical: float
    dense: float
    bm25: float | None
    cosine: float | None
    penalty: float = 0.0
    beside: float = 0.0
    time: float = 0.0
    scale: float = 1.0
    recency: float = 0.0
    reranked: float = 0.0
    late: float = 0.0
    importance: float = 0.0
    coverage: float = 0.0
    named: float = 0.0

    @property
    def without_vector(self) -> bool:
        """True if the memory has no vector yet, so that its words stand for its meaning."""
        return self.cosine is None and self.dense > 0

    def lowered(self) -> Fused:
        """The same result with the penalty of a flagged memory."""
        penalty = (1 - FLAGGED_SHARE) * self.score
        return self._replace(score=self.score - penalty, penalty=penalty)

    def scaled(self, factor: float) -> Fused:
        """The same result with the score and all its parts multiplied."""
        # Positional: keyword arguments take twice as long, and a search does this a hundred times.
        return Fused(
            self.id,
            self.score * factor,
            self.lexical * factor,
            self.dense * factor,
            self.bm25,
            self.cosine,
            self.penalty * factor,
            self.beside * factor,
            self.time * factor,
            self.scale * factor,
            self.recency * factor,
            self.reranked * factor,
            self.late * factor,
            self.importance * factor,
            self.coverage,
            self.named * factor,
        )


def relevant(hits: Sequence[Fused], floor: float | None) -> list[Fused]:
    """The hits that contain a word of the query or have at least the cosine `floor`. None: or a score above 0."""
    if floor is None:
        return [hit for hit in hits if hit.bm25 is not None or hit.score > 0]
    return [hit for hit in hits if hit.bm25 is not None or (hit.cosine is not None and hit.cosine >= floor)]


def within_one(hits: list[Fused]) -> list[Fused]:
    """Sorts the hits, best first, and divides by the best score if that is above 1. Equal scores keep their order."""
    hits = sorted(hits, key=lambda hit: -hit.score)
    return [hit.scaled(1 / hits[0].score) for hit in hits] if hits and hits[0].score > 1 else hits


def dense_share(dense: Sequence[Hit], lexical: Sequence[LexicalHit]) -> float:
    """The weight of the dense arm for this query. An arm gets all of it if the other is empty.

    share = DENSE_WEIGHT · n / (n + HALF_WEIGHT_SIZE), where n is the number of dense hits
    """
    if not lexical or not dense:
        return 0.0 if lexical else 1.0
    return DENSE_WEIGHT * len(dense) / (len(dense) + HALF_WEIGHT_SIZE)


def fuse(
    dense: Sequence[Hit],
    lexical: Sequence[LexicalHit],
    *,
    weight: float | None = None,
    complete: bool = False,
    waiting: Container[UUID] = (),
) -> list[Fused]:
    """Fuses the hits of both arms into one list, best first. Equal scores keep the order of the arms, lexical first.

    The result is the convex combination, over the hits of each arm,

        score = (1 - weight) · bm25 / max(bm25) + weight · (cosine - min(cosine)) / (max(cosine) - min(cosine))

    after Bruch, Gai and Ingber 2023, "An Analysis of Fusion Functions for Hybrid Retrieval": unlike reciprocal rank
    fusion, it keeps how much better one hit is than the next. BM25 has 0 as its natural minimum: no word in common. A
    cosine has no such minimum, and its range depends on the model. The minimum of the list is used instead, which is an
    upper bound for all memories that the dense arm did not list. A memory that an arm did not list gets 0 from that
    arm. The weight is that of `dense_share` unless it is given.

    `waiting`: memories that have no vector yet. Nothing is known of their meaning, so they get the same from the dense
    arm as from their words. `complete`: the dense arm listed every memory that has a vector, so all others wait.

    If one arm is empty, the order is that of the other, and its best hit scores 1. If an arm's scores are all equal,
    all its hits get the same.

    Raises:
        ValueError: `weight` is not in [0, 1].
    """
    if weight is None:
        weight = dense_share(dense, lexical)
    elif not 0 <= weight <= 1:
        raise ValueError(f"weight: {weight} is not in [0, 1]")
    elif not lexical:
        weight = 1.0
    elif not dense:
        weight = 0.0
    highest = max((hit.score for hit in lexical), default=0.0)
    vectors = {hit.id: hit.score for hit in dense}
    nearest = max(vectors.values(), default=0.0)
    farthest = min(vectors.values(), default=0.0)
    found = []
    for hit in lexical:
        # Removed, so that the rest is in the dense list alone: hashing a UUID takes as long as adding it up.
        cosine = vectors.pop(hit.id, None)
        of_words = between(hit.score, 0.0, highest)
        unknown = of_words if cosine is None and (complete or hit.id in waiting) else 0.0
        from_words = (1 - weight) * of_words
        from_vector = weight * (unknown if cosine is None else between(cosine, farthest, nearest))
        score = from_words + from_vector
        found.append(Fused(hit.id, score, from_words, from_vector, hit.score, cosine, coverage=hit.coverage))
    for id_, cosine in vectors.items():
        from_vector = weight * between(cosine, farthest, nearest)
        found.append(Fused(id_, from_vector, 0.0, from_vector, None, cosine))
    found.sort(key=attrgetter("score"), reverse=True)
    return found


def between(score: float, low: float, high: float) -> float:
    """The position of `score` between `low` and `high`, from 0 to 1. The scores of an arm may all be equal."""
    return (score - low) / (high - low) if high > low else 1.0

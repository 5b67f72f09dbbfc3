"""Ranks the candidates of a search by a linear model of their features, and estimates the probability that each is
right.

The order and the scores have weights of their own. The order also compares the candidates with each other, and a score
must mean the same in every store. Where the two disagree, the scores of neighbouring hits are averaged, so they never
contradict the order.
"""

from __future__ import annotations

import math
from collections.abc import Container, Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.chance import USUAL, ChanceCosine
from openmemory.index.port import Hit
from openmemory.search.candidates.lexical import LexicalHit
from openmemory.search.ranking import weights
from openmemory.search.ranking.features import (
    FEATURES,
    PLACE,
    Candidate,
    QuestionParts,
    Table,
    add_about,
    add_beside,
    own_evidence,
)
from openmemory.search.ranking.weights import FLAGGED, TOKENS, VECTORS, WORDS, Vector, Weights


class Ranked(NamedTuple):
    """One hit. `score` is the chance that it is relevant, from 0 to 1. `values` are its features and `weights` what
    each is worth; both are None for hits that were not ranked by them. `levelled` is what was added to the logit of the
    score so that it does not contradict the order.

    `cosine` and `bm25` are the scores of the arms, None if an arm did not list it. `maxsim` is that of its tokens.
    `reranked` is what a second stage added to the score. `least`: the score below which it is not shown.
    """

    id: UUID
    score: float
    values: Vector | None = None
    weights: Weights | None = None
    levelled: float = 0.0
    cosine: float | None = None
    bm25: float | None = None
    maxsim: float | None = None
    reranked: float = 0.0
    least: float = 0.0

    @property
    def adds(self) -> Vector:
        """The term of each feature in the logit of the score."""
        if self.values is None or self.weights is None:
            return np.zeros(len(FEATURES))
        return self.values * self.weights.score

    @property
    def order(self) -> float:
        """The sum by which hits are ordered."""
        if self.values is None or self.weights is None:
            return 0.0
        return float(self.values @ self.weights.order)

    @property
    def flagged(self) -> bool:
        """True if it was ranked as a text that is flagged as a prompt injection."""
        return self.values is not None and bool(self.values[PLACE["flagged"]])

    def raised(self, score: float) -> Ranked:
        """The same hit with a higher score, so that it does not contradict its place."""
        more = logit(score) - logit(self.score) if self.values is not None else 0.0
        return self._replace(score=score, levelled=self.levelled + more)

    def lowered(self) -> Ranked:
        """The same hit as a flagged one."""
        if self.flagged or self.values is None:
            return self
        values = self.values.copy()
        values[PLACE["flagged"]] = 1.0
        return self._replace(score=chance(logit(self.score) + FLAGGED), values=values)


def chance(value: float) -> float:
    """The chance of a logit."""
    return 1 / (1 + math.exp(-max(min(value, 700.0), -700.0)))


def logit(score: float) -> float:
    """The logit of a chance, within the precision of a float."""
    score = min(max(score, 1e-15), 1 - 1e-15)
    return math.log(score / (1 - score))


def candidates(
    dense: Sequence[Hit],
    words: Sequence[LexicalHit],
    *,
    floor: float | None = None,
    complete: bool = False,
    waiting: Container[UUID] = (),
    chance: ChanceCosine = USUAL,
) -> list[Candidate]:
    """The hits of the two arms, ranked by their own evidence, best first.

    Texts with equal evidence are in the order of their ids. Sums are rounded by the order in which texts are compared,
    so a fixed order gives equal searches equal scores.

    A text below the `floor` of cosines is left out if it contains no word of the query. `waiting`: the texts without
    a vector. `complete`: the dense arm listed every text that has a vector, so all others wait.
    """
    by_id = {hit.id: Candidate(hit.id, cosine=hit.score) for hit in dense}
    for word in words:
        if word.id in by_id:
            by_id[word.id].words = word
        else:
            by_id[word.id] = Candidate(word.id, None, word, waiting=not dense or complete or word.id in waiting)
    some = [one for one in by_id.values() if one.words is not None or floor is None or (one.cosine or 0.0) >= floor]
    if not some:
        return []
    table = own_evidence(some, QuestionParts("", chance=chance))
    order = (table @ weights_for(some).alone).tolist()
    return [one for _, one in sorted(zip(order, some, strict=True), key=lambda pair: (-pair[0], pair[1].id))]


def weights_for(candidates: Sequence[Candidate]) -> Weights:
    """The weights for tokens if any candidate was compared, otherwise for vectors if any has one, otherwise for words.
    One set ranks all candidates, because sums by different weights do not compare."""
    if any(one.late is not None for one in candidates):
        return TOKENS
    return VECTORS if any(one.cosine is not None for one in candidates) else WORDS


def table_of(candidates: Sequence[Candidate], question: QuestionParts, kind: Weights) -> Table:
    """The features of all candidates."""
    table = own_evidence(candidates, question)
    alone = table @ kind.alone
    add_beside(table, candidates, alone)
    add_about(table, candidates, alone, question)
    return table


def ranked(candidates: Sequence[Candidate], question: QuestionParts) -> list[Ranked]:
    """The candidates as hits, best first. Equal ones keep their order."""
    kind = weights_for(candidates)
    if any(one.row is not None and one.row.thread for one in candidates):
        kind = kind.in_threads()
    table = table_of(candidates, question, kind)
    order = np.argsort(-(table @ kind.order), kind="stable")
    own = (table @ kind.score)[order]
    level = levelled(own)
    scores = 1 / (1 + np.exp(-np.clip(level, -700.0, 700.0)))
    hits = []
    for place, score, difference in zip(order.tolist(), scores.tolist(), (level - own).tolist(), strict=True):
        one = candidates[place]
        hits.append(
            Ranked(
                one.id,
                score,
                table[place],
                kind,
                difference,
                one.cosine,
                None if one.words is None else one.words.score,
                None if one.late is None else one.late.maxsim,
                least=least_score(one),
            )
        )
    return hits


def newest_first(hits: Sequence[Ranked], ids: Sequence[UUID]) -> list[Ranked]:
    """Hits that answer equally well, in the order of the `ids` and with the score of the best."""
    best = max((hit.score for hit in hits), default=0.0)
    by_id = {hit.id: hit.raised(best) for hit in hits}
    return [by_id[id_] for id_ in ids if id_ in by_id]


def least_score(candidate: Candidate) -> float:
    """The score below which a text is not shown. What contains the rare words of a question is shown at any score."""
    if candidate.words is not None and candidate.words.coverage >= weights.LITERAL:
        return 0.0
    row = candidate.row
    is_fact = row is not None and row.thread is None and row.length <= weights.FACT_LENGTH
    return weights.FACT_SCORE if is_fact else weights.MIN_SCORE


def levelled(logits: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The nearest logits that never rise: neighbours that do are averaged (pool adjacent violators, Ayer 1955)."""
    blocks: list[tuple[float, int]] = []
    for value in logits.tolist():
        total, count = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] < total / count:
            more, others = blocks.pop()
            total, count = total + more, count + others
        blocks.append((total, count))
    return np.array([total / count for total, count in blocks for _ in range(count)])

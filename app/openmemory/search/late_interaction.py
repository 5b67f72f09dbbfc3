"""Late interaction: the best of what was found are compared with the question word by word. Pure.

One vector for a text says what it is about on average. The same network makes a vector of each token, in its context;
what each token of a question is nearest to in a memory tells whether the memory says *that*, not only something like
it. This is MaxSim of ColBERT (Khattab and Zaharia 2020), over the best of the fused candidates alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.port import Tokens
from openmemory.embeddings.tokens import cosines
from openmemory.index.tokens import Kept
from openmemory.search.fusion import Fused

READ = 30
"""Hits, from the best on, whose tokens are read."""

BLOCK = 32
"""Tokens of half a window. Only in one window does a text say all of it: what it says here and there has nothing to do
with each other. With words that say nothing this is as much as a window of a vector (`embeddings.windows`)."""

MOST = 0.7
"""What a MaxSim weighs at most against a score: for a question of no words, as it were."""

LONG = 16
"""Tokens of a question for which it weighs half of that: of many tokens most are near to something in any text."""

CLEAR = 0.2
"""By how much the MaxSims of candidates differ at least where they weigh in full. Where one of thirty says it and the
others do not, it is 0.3 to 0.6; what differs less differs by chance, and must not be spread over the scores."""

HEAVY = 3_000
"""Tokens of candidates from which on comparing takes more than two milliseconds, and goes to another thread."""

EQUAL = 1e-6
"""What two scores differ by that are the same but for rounding."""

Maxima = npt.NDArray[np.float32]
"""For each block, window or candidate and token of the question the cosine of the nearest token, shape (…, tokens)."""


class Told(NamedTuple):
    """What late interaction made of a hit: the weight of it, its `value` on the scale of the scores, its MaxSim, its
    place by that, from 1, and what the hit had been multiplied by then."""

    weight: float
    value: float
    maxsim: float
    rank: int
    scale: float


class Blended(NamedTuple):
    """What blends two scores: the `weight` of the second, and that on the scale of the first."""

    weight: float
    values: list[float]


def maxsims(question: Tokens, kept: Kept) -> list[float]:
    """How well each candidate says what the question says, 0 to 1.

        maxsim = max over windows of Σ over the question's tokens of w · max² / Σ w
        w = 1 + max over the candidates of their maxima - 2 · mean over them

    MaxSim weighted by what tells candidates apart: a token that all of them have tells nothing, as a word does that all
    texts hold (Spärck Jones 1972), one that a single one has tells most. Squares, so that one that is there counts more
    than two that are half there. A window is two blocks that follow each other, or the only one.
    """
    starts: list[int] = []
    begins: list[int] = []
    first = 0
    for count in kept.counts:
        begins.append(len(starts))
        starts.extend(range(first, first + count, BLOCK))
        first += count
    windows: Maxima = np.maximum.reduceat(cosines(question, kept.tokens), starts, axis=0)
    whole = windows
    if len(starts) > len(begins):
        whole = np.maximum.reduceat(windows, begins, axis=0)
        # The last block of a text has none after it.
        after = np.arange(1, len(starts) + 1)
        after[[begin - 1 for begin in [*begins[1:], len(starts)]]] -= 1
        windows = np.maximum(windows, windows[after])
    weights = 1 + whole.max(axis=0) - 2 * whole.sum(axis=0) / len(whole)
    if (all_of_them := float(weights.sum())) <= 0:
        return [0.0] * len(begins)
    said: list[float] = np.maximum.reduceat(windows * windows @ (weights / all_of_them), begins).tolist()
    return said


def blended(scores: Sequence[float], said: Sequence[float], tokens: int) -> Blended:
    """The MaxSims of candidates on the scale of their scores, and what they weigh for a question of so many tokens.

        score = (1 - weight) · score + weight · value
        value = min(score) + range(score) · (said - min(said)) / range(said)
        weight = MOST · LONG / (LONG + tokens) · min(1, range(said) / CLEAR)

    The ends are those of the scores, so that the lowest candidate stays above all that was not compared. Nothing is
    weighed where the scores or the MaxSims are all equal.
    """
    least, most = min(scores, default=0.0), max(scores, default=0.0)
    low, high = min(said, default=0.0), max(said, default=0.0)
    if high - low <= EQUAL or most - least <= EQUAL:
        return Blended(0.0, [0.0] * len(said))
    values = [least + (most - least) * (one - low) / (high - low) for one in said]
    return Blended(MOST * LONG / (LONG + tokens) * min(1.0, (high - low) / CLEAR), values)


def compared(ranked: Sequence[Fused], question: Tokens, kept: Kept) -> tuple[list[Fused], dict[UUID, Told]]:
    """The hits with what the tokens of the question say of those of the first `READ` whose tokens are kept, best first;
    equal scores keep their order. What has none keeps its score. And what was made of each.

    The weight is that of `blended` times the square of the share of the question's tokens that are no numbers, which
    are zeros here: where half of a question is numbers mostly these tell.
    """
    words = question[question.any(axis=1)]
    kept = kept.of([hit.id for hit in ranked[:READ]])
    if len(kept.ids) < 2 or not len(words):
        return list(ranked), {}
    known = set(kept.ids)
    read = [hit for hit in ranked[:READ] if hit.id in known]
    said = maxsims(words, kept)
    weight, values = blended([hit.score for hit in read], said, len(question))
    weight *= (len(words) / len(question)) ** 2
    if not weight:
        return list(ranked), {}
    places = {at: place for place, at in enumerate(sorted(range(len(said)), key=lambda at: -said[at]), 1)}
    least, most = read[-1].score, read[0].score
    told: dict[UUID, Told] = {}
    best: list[Fused] = []
    for hit in ranked[:READ]:
        if hit.id not in known:
            best.append(hit)
            continue
        at = len(told)
        lower = hit.scaled(1 - weight)
        # No rounding carries a score beyond the ends.
        score = min(max(lower.score + weight * values[at], least), most)
        best.append(lower._replace(score=score, late=weight * values[at]))
        told[hit.id] = Told(weight, values[at], said[at], places[at], lower.scale)
    # None of them falls below the lowest of them, and so none below the rest.
    return [*sorted(best, key=lambda hit: -hit.score), *ranked[READ:]], told

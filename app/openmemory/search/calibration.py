"""Maps the value by which hits are ranked to the chance that a hit is relevant.

A ranking value compares the hits of one query: the best of them is always near 1, whatever it says. How much it says
shows in what does not depend on the other hits: the cosine, and the share of the query's words. The map is logistic
regression (Platt 1999). Within a query it grows with the ranking value, so it never changes the order.

The constants were fitted by `benchmarks.calibration` on judged collections, to questions that have an answer there and
as many that have none.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from openmemory.embeddings.port import PACKAGED
from openmemory.search.fusion import Fused

MIN_SCORE = 0.02
"""The score below which a hit is no evidence, and is not shown. A text that contains the query as it is written is
shown at any score."""

EVIDENCE_HITS = 10
"""The number of top hits whose best cosine and best coverage count."""


class Weights(NamedTuple):
    """The fitted constants: the logit is `base` plus each evidence times its weight."""

    base: float
    ranking: float
    coverage: float
    cosine: float = 0.0


WITH_COSINES = {PACKAGED: Weights(-10.82, 7.64, 1.84, 4.47)}
"""By model: the scales of cosines differ."""

WORDS_ALONE = Weights(-9.19, 7.86, 3.72)
"""For other models, for text search alone, and if the first hit has no vector yet: the cosines of other memories do not
speak for it."""


class Calibration(NamedTuple):
    """The map for the hits of one search."""

    weights: Weights
    coverage: float
    """The best coverage among the first hits (`LexicalHit.coverage`)."""
    cosine: float | None
    """The best cosine among them. None: it does not count."""

    def of(self, ranking: float) -> float:
        """The chance that a hit with this ranking value is relevant."""
        weights = self.weights
        logit = weights.base + weights.ranking * ranking + weights.coverage * self.coverage
        return 1 / (1 + math.exp(-(logit + weights.cosine * (self.cosine or 0.0))))

    @property
    def formula(self) -> str:
        """The map as a formula of the ranking value."""
        weights = self.weights
        parts = [
            f"{weights.base:g}",
            f"{weights.ranking:g}·ranking",
            f"{weights.coverage:g}·{self.coverage:.6g} (coverage)",
        ]
        if self.cosine is not None:
            parts.append(f"{weights.cosine:g}·{self.cosine:.6g} (cosine)")
        return f"score = 1 / (1 + exp(-({' + '.join(parts)})))"


def calibration(hits: Sequence[Fused], model: str) -> Calibration:
    """The map for these hits, best first, with the evidence of the best of them."""
    best = hits[:EVIDENCE_HITS]
    coverage = max((hit.coverage for hit in best), default=0.0)
    cosines = [hit.cosine for hit in best if hit.cosine is not None]
    weights = WITH_COSINES.get(model)
    if weights is None or not cosines or best[0].without_vector:
        return Calibration(WORDS_ALONE, coverage, None)
    return Calibration(weights, coverage, max(cosines))

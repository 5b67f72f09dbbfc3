"""The fitted weights of a search: what each feature is worth, as logits.

`benchmarks.fit` fits them on judged collections, to questions that have an answer there and as many that have none, in
large and in small stores. Nothing here is set by hand but `FLAGGED` and `RECENCY`, of which no collection knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmemory.search.features import FEATURES, PLACE

MIN_SCORE = 0.02
"""The score below which a hit is not shown: fifty such hits hold one right one."""

FLAGGED = -3.0
"""What a text loses that is flagged as a prompt injection: a twentieth of its odds is left. The label is a guess, so
such a text can still be found, but it displaces none that is about as near."""

RECENCY = 0.5
"""What a memory gains for being new, if `search.recency` is set: enough to decide between equivalent memories."""

Vector = npt.NDArray[np.float64]


class Weights(NamedTuple):
    """The weights of one kind of evidence: those of a text `alone`, which its neighbours gain from, those of the
    `order`, and those of the `score`. Each is a vector in the order of `FEATURES`."""

    alone: Vector
    order: Vector
    score: Vector


def vector(values: Mapping[str, float]) -> Vector:
    """The weights in the order of `FEATURES`; 0 for what is not named."""
    found = np.zeros(len(FEATURES))
    for name, value in values.items():
        found[PLACE[name]] = value
    return found


def _weights(alone: Mapping[str, float], order: Mapping[str, float], score: Mapping[str, float]) -> Weights:
    by_hand = {"flagged": FLAGGED, "recency": RECENCY}
    return Weights(vector(alone), vector({**order, **by_hand}), vector({**score, **by_hand}))


# --- fitted
TOKENS = _weights({}, {}, {})
"""For texts whose tokens were compared with the question's."""

VECTORS = _weights({}, {}, {})
"""For texts with a vector alone: of a provider's model, or of a question without words."""

WORDS = _weights({}, {}, {})
"""For texts without a vector: text search alone, or a text that was just stored."""

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

MIN_SCORE = 0.01
"""The score below which a hit is not shown: a hundred such hits hold one right one."""

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


TOKENS = _weights(
    {
        "base": -6.37,
        "question": 0.536,
        "meaning": 2.79,
        "near": 1.19,
        "words": 4.01,
        "covered": -1.28,
        "tokens": 2.38,
        "said": -0.701,
    },
    {
        "meaning": 4.1,
        "near": -1.38,
        "words": 4.75,
        "covered": -4.59,
        "tokens": 1.23,
        "said": 1.79,
        "distinct": 18.4,
        "distinct_short": -16.4,
        "before": -0.301,
        "after": 0.527,
        "second_before": 0.396,
        "second_after": 0.453,
        "answers": 1.28,
        "thread": 1.86,
        "second_thread": 0.683,
        "asks": -0.27,
        "time": 4.17,
        "speaker": 0.625,
        "other_speaker": -0.0304,
        "user": 0.806,
        "assistant": -0.683,
        "user_me": 0.509,
        "assistant_me": -0.428,
        "length": 0.048,
        "user_length": -1.4,
        "assistant_length": -0.488,
        "named": 2.07,
    },
    {
        "base": -6.46,
        "question": 0.507,
        "meaning": 3.48,
        "near": 1.51,
        "words": 3.77,
        "covered": -0.903,
        "tokens": 2.84,
        "said": -0.0818,
        "before": -0.128,
        "after": 0.14,
        "second_before": -0.338,
        "second_after": 0.0264,
        "answers": 0.472,
        "thread": 0.381,
        "second_thread": -1.3,
        "asks": 0.0933,
        "time": 0.354,
        "speaker": 0.181,
        "other_speaker": -0.346,
        "user": -0.445,
        "assistant": -0.687,
        "user_me": 1,
        "assistant_me": -0.143,
        "length": 0.14,
        "user_length": -0.71,
        "assistant_length": -0.96,
        "named": 1.23,
    },
)
"""For texts whose tokens were compared with the question's."""

VECTORS = _weights(
    {"base": -6.32, "question": 0.536, "meaning": 3.68, "near": 1.13, "words": 5.74, "covered": -1.45},
    {
        "meaning": 6.32,
        "near": 0.273,
        "words": 10.8,
        "covered": -7.28,
        "before": 0.228,
        "after": 0.656,
        "second_before": 0.427,
        "second_after": 0.243,
        "answers": 1.71,
        "thread": 2.61,
        "second_thread": 0.237,
        "asks": -0.309,
        "time": 4.32,
        "speaker": 0.958,
        "other_speaker": 0.255,
        "user": 1.6,
        "assistant": -1.36,
        "user_me": -0.466,
        "assistant_me": 0.392,
        "length": 0.149,
        "user_length": -1.3,
        "assistant_length": -0.972,
        "named": 2.3,
    },
    {
        "base": -6.36,
        "question": 0.508,
        "meaning": 4.47,
        "near": 1.76,
        "words": 5.7,
        "covered": -0.857,
        "before": -0.00601,
        "after": 0.253,
        "second_before": -0.468,
        "second_after": -0.177,
        "answers": 0.745,
        "thread": 0.271,
        "second_thread": -1.15,
        "asks": 0.0212,
        "time": 0.486,
        "speaker": 0.33,
        "other_speaker": -0.336,
        "user": -0.0754,
        "assistant": -0.636,
        "user_me": 0.608,
        "assistant_me": -0.393,
        "length": 0.107,
        "user_length": -0.548,
        "assistant_length": -0.89,
        "named": 1.38,
    },
)
"""For texts with a vector alone: of a provider's model, or of a question without words."""

WORDS = _weights(
    {"base": -4.11, "words": 8.14, "covered": -1.99},
    {
        "words": 17.8,
        "covered": -12.5,
        "before": -0.0155,
        "after": 0.342,
        "second_before": 0.502,
        "second_after": 0.488,
        "answers": 1.64,
        "thread": 1.42,
        "second_thread": 1.65,
        "asks": -0.376,
        "time": 4.47,
        "speaker": 1.75,
        "other_speaker": 1.25,
        "user": 0.856,
        "assistant": -0.596,
        "user_me": 0.886,
        "assistant_me": -0.607,
        "length": 0.0244,
        "user_length": -1.51,
        "assistant_length": -0.426,
        "named": 1.92,
    },
    {
        "base": -4.13,
        "words": 9.28,
        "covered": -1.04,
        "before": 0.173,
        "after": 0.331,
        "second_before": 0.104,
        "second_after": -0.139,
        "answers": 0.599,
        "thread": -0.609,
        "second_thread": -1.05,
        "asks": 0.0671,
        "time": 0.925,
        "speaker": 0.27,
        "other_speaker": -0.256,
        "user": -0.524,
        "assistant": -0.592,
        "user_me": 1.67,
        "assistant_me": -0.173,
        "length": 0.11,
        "user_length": -0.518,
        "assistant_length": -0.828,
        "named": 0.86,
    },
)
"""For texts without a vector: text search alone, or a text that was just stored."""

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
"""The score below which a hit is not shown. Chosen by `benchmarks.everyday`: with a half more, right ones are lost;
without it, three unrelated memories are shown a question."""

FLAGGED = -3.0
"""The term of a text that is flagged as a prompt injection: a twentieth of its odds is left. The label is a guess, so
such a text can still be found, but it displaces none that is about as near."""

RECENCY = 0.5
"""The term of a memory that is new, if `search.recency` is set: enough to decide between equivalent memories."""

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
        "base": -5.87,
        "question": 0.317,
        "meaning": 3.03,
        "near": 1.29,
        "words": 3.87,
        "covered": -1.34,
        "tokens": 2.2,
        "said": -0.706,
    },
    {
        "meaning": 4.14,
        "near": -1.55,
        "words": 4.8,
        "covered": -4.59,
        "tokens": 1.18,
        "said": 1.69,
        "distinct": 21.9,
        "distinct_short": -20.7,
        "before": -0.315,
        "after": 0.539,
        "second_before": 0.384,
        "second_after": 0.446,
        "answers": 1.3,
        "thread": 1.88,
        "second_thread": 0.724,
        "asks": -0.269,
        "time": 4.17,
        "speaker": 0.571,
        "other_speaker": -0.0847,
        "user": 1.01,
        "assistant": -0.859,
        "user_me": 0.21,
        "assistant_me": -0.177,
        "length": 0.0491,
        "user_length": -1.43,
        "assistant_length": -0.614,
        "named": 2.04,
    },
    {
        "base": -5.89,
        "question": 0.237,
        "meaning": 3.71,
        "near": 1.58,
        "words": 3.62,
        "covered": -0.894,
        "tokens": 2.76,
        "said": -0.0636,
        "before": -0.141,
        "after": 0.0938,
        "second_before": -0.373,
        "second_after": -0.0264,
        "answers": 0.537,
        "thread": 0.3,
        "second_thread": -1.24,
        "asks": 0.117,
        "time": 0.455,
        "speaker": 0.146,
        "other_speaker": -0.36,
        "user": -0.427,
        "assistant": -0.69,
        "user_me": 1.06,
        "assistant_me": -0.29,
        "length": 0.174,
        "user_length": -0.713,
        "assistant_length": -0.965,
        "named": 1.28,
    },
)
"""For texts whose tokens were compared with the question's."""

VECTORS = _weights(
    {"base": -5.93, "question": 0.368, "meaning": 3.84, "near": 1.19, "words": 5.5, "covered": -1.5},
    {
        "meaning": 6.3,
        "near": 0.306,
        "words": 10.8,
        "covered": -7.3,
        "before": 0.225,
        "after": 0.673,
        "second_before": 0.429,
        "second_after": 0.25,
        "answers": 1.71,
        "thread": 2.64,
        "second_thread": 0.266,
        "asks": -0.308,
        "time": 4.32,
        "speaker": 0.959,
        "other_speaker": 0.257,
        "user": 1.61,
        "assistant": -1.36,
        "user_me": -0.474,
        "assistant_me": 0.398,
        "length": 0.147,
        "user_length": -1.3,
        "assistant_length": -0.973,
        "named": 2.3,
    },
    {
        "base": -5.8,
        "question": 0.231,
        "meaning": 4.71,
        "near": 1.8,
        "words": 5.53,
        "covered": -0.878,
        "before": -0.0817,
        "after": 0.144,
        "second_before": -0.386,
        "second_after": -0.176,
        "answers": 0.693,
        "thread": 0.222,
        "second_thread": -1.15,
        "asks": 0.0204,
        "time": 0.59,
        "speaker": 0.295,
        "other_speaker": -0.343,
        "user": -0.0392,
        "assistant": -0.655,
        "user_me": 0.664,
        "assistant_me": -0.442,
        "length": 0.139,
        "user_length": -0.535,
        "assistant_length": -0.917,
        "named": 1.37,
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

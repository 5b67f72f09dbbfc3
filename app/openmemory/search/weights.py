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
"""The score below which a hit is not shown."""

FACT_SCORE, FACT_LENGTH = 0.07, 200
"""The same for a fact: a text of at most so many characters that is no part of a conversation. Chosen on the everyday
sets of the fit: one wrong memory is shown a question then. A part of a conversation, or a long text, leads to what it
stands beside, so less evidence is enough: with the bound of facts, a quarter of what answers in chats would be lost."""

LITERAL = 0.35
"""The coverage of a question's words from which a text is shown at any score: it contains the only word, or the one
that is rare. On the everyday sets, this shows next to nothing else."""

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
        "base": -3.16,
        "question": -0.854,
        "meaning": 1.54,
        "near": -0.531,
        "words": 1.47,
        "covered": -0.245,
        "tokens": 1.34,
        "said": 1.97,
    },
    {
        "meaning": 1.09,
        "near": -0.451,
        "words": 2.55,
        "tokens": 4.53,
        "said": 1.11,
        "distinct": 20,
        "distinct_short": -20.2,
        "before": -0.0822,
        "after": 0.52,
        "second_before": 0.214,
        "second_after": -0.0656,
        "answers": 0.827,
        "thread": 1.58,
        "second_thread": -0.109,
        "asks": -0.523,
        "time": 3.84,
        "speaker": 0.337,
        "other_speaker": -0.479,
        "user": 2.08,
        "assistant": -1.96,
        "user_me": -1.64,
        "assistant_me": 1.53,
        "length": -0.146,
        "user_length": -1.02,
        "assistant_length": -1.29,
        "named": 1.81,
    },
    {
        "base": -3.36,
        "question": -0.916,
        "meaning": 2.18,
        "near": -1.06,
        "words": 0.387,
        "tokens": 3.39,
        "said": 1.77,
        "before": 0.208,
        "after": 0.375,
        "second_before": -0.21,
        "second_after": -0.0523,
        "answers": 0.316,
        "thread": -0.894,
        "second_thread": -1.7,
        "asks": -0.069,
        "time": 0.858,
        "speaker": -0.0484,
        "other_speaker": -0.736,
        "user": 0.159,
        "assistant": -0.443,
        "user_me": 0.541,
        "assistant_me": -0.425,
        "user_length": -0.395,
        "assistant_length": -0.612,
        "named": 0.877,
    },
)
"""For texts whose tokens were compared with the question's."""

VECTORS = _weights(
    {"base": -3.06, "question": -0.813, "meaning": 1.55, "near": -0.359, "words": 2.37, "covered": -0.693},
    {
        "meaning": 1.93,
        "near": -0.276,
        "words": 8.36,
        "before": 0.501,
        "after": 0.758,
        "second_before": 0.197,
        "second_after": -0.458,
        "answers": 1.28,
        "thread": 2.62,
        "second_thread": -0.353,
        "asks": -0.533,
        "time": 3.84,
        "speaker": 0.0286,
        "other_speaker": -0.888,
        "user": 2.11,
        "assistant": -1.98,
        "user_me": -1.46,
        "assistant_me": 1.36,
        "length": 0.00767,
        "user_length": -0.905,
        "assistant_length": -1.2,
        "named": 2.12,
    },
    {
        "base": -2.99,
        "question": -0.996,
        "meaning": 2.44,
        "near": -0.954,
        "words": 2.76,
        "covered": -2.07,
        "before": 0.211,
        "after": 0.512,
        "second_before": -0.217,
        "second_after": -0.238,
        "answers": 0.649,
        "thread": -1.01,
        "second_thread": -1.68,
        "asks": 0.011,
        "time": 1.07,
        "speaker": 0.18,
        "other_speaker": -0.529,
        "user": -0.0139,
        "assistant": -0.381,
        "user_me": 0.746,
        "assistant_me": -0.363,
        "user_length": -0.295,
        "assistant_length": -0.53,
        "named": 0.912,
    },
)
"""For texts with a vector alone: of a provider's model, or of a question without words."""

WORDS = _weights(
    {"base": -3.58, "words": 5.8, "covered": -3.42},
    {
        "words": 14.6,
        "before": -0.0398,
        "after": 0.921,
        "second_before": 0.809,
        "second_after": 0.418,
        "answers": 1.28,
        "thread": 2.82,
        "second_thread": -0.00661,
        "asks": -0.533,
        "time": 3.66,
        "speaker": 0.181,
        "other_speaker": -0.61,
        "user": 2.17,
        "assistant": -1.85,
        "user_me": -1.09,
        "assistant_me": 0.915,
        "length": -0.0568,
        "user_length": -0.837,
        "assistant_length": -0.681,
        "named": 2.33,
    },
    {
        "base": -3.3,
        "words": 6.73,
        "covered": -4.82,
        "before": 0.0798,
        "after": 0.737,
        "second_before": 0.168,
        "second_after": -0.175,
        "answers": 0.622,
        "thread": -1.03,
        "second_thread": -1.2,
        "asks": 0.105,
        "time": 0.968,
        "speaker": 0.142,
        "other_speaker": -0.515,
        "user": -0.161,
        "assistant": -0.36,
        "user_me": 0.936,
        "assistant_me": -0.326,
        "user_length": -0.235,
        "assistant_length": -0.503,
        "named": 0.753,
    },
)
"""For texts without a vector: text search alone, or a text that was just stored."""

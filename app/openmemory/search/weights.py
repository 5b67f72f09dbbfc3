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
        "base": -3.19,
        "question": -0.831,
        "meaning": 1.53,
        "near": -0.542,
        "words": 1.28,
        "covered": -0.0222,
        "tokens": 1.48,
        "said": 1.93,
    },
    {
        "meaning": 1.07,
        "near": -0.418,
        "words": 3.87,
        "covered": -4.61,
        "tokens": 4.13,
        "said": 2.18,
        "distinct": 19.3,
        "distinct_short": -19.7,
        "before": -0.0286,
        "after": 0.511,
        "second_before": 0.19,
        "second_after": -0.121,
        "answers": 0.876,
        "thread": 1.64,
        "second_thread": -0.0876,
        "asks": -0.527,
        "time": 3.82,
        "speaker": 0.849,
        "other_speaker": 0.0372,
        "user": 2.07,
        "assistant": -1.95,
        "user_me": -1.62,
        "assistant_me": 1.51,
        "length": -0.156,
        "user_length": -0.988,
        "assistant_length": -1.28,
        "named": 1.77,
    },
    {
        "base": -3.37,
        "question": -0.916,
        "meaning": 2.19,
        "near": -1.06,
        "words": 0.66,
        "covered": -0.795,
        "tokens": 3.3,
        "said": 1.82,
        "before": 0.212,
        "after": 0.347,
        "second_before": -0.294,
        "second_after": -0.101,
        "answers": 0.414,
        "thread": -0.931,
        "second_thread": -1.61,
        "asks": -0.0263,
        "time": 0.873,
        "speaker": -0.061,
        "other_speaker": -0.698,
        "user": 0.157,
        "assistant": -0.447,
        "user_me": 0.558,
        "assistant_me": -0.43,
        "user_length": -0.39,
        "assistant_length": -0.62,
        "named": 0.85,
    },
)
"""For texts whose tokens were compared with the question's."""

VECTORS = _weights(
    {"base": -3.12, "question": -0.803, "meaning": 1.66, "near": -0.465, "words": 2.17, "covered": -0.458},
    {
        "meaning": 1.77,
        "near": -0.198,
        "words": 10.3,
        "covered": -11,
        "before": 0.525,
        "after": 0.706,
        "second_before": 0.152,
        "second_after": -0.483,
        "answers": 1.32,
        "thread": 2.42,
        "second_thread": -0.302,
        "asks": -0.522,
        "time": 3.82,
        "speaker": 1.01,
        "other_speaker": 0.129,
        "user": 2.07,
        "assistant": -1.95,
        "user_me": -1.42,
        "assistant_me": 1.33,
        "length": -0.021,
        "user_length": -0.9,
        "assistant_length": -1.18,
        "named": 2.04,
    },
    {
        "base": -3,
        "question": -1,
        "meaning": 2.51,
        "near": -1.03,
        "words": 2.63,
        "covered": -1.86,
        "before": 0.153,
        "after": 0.422,
        "second_before": -0.221,
        "second_after": -0.232,
        "answers": 0.608,
        "thread": -0.922,
        "second_thread": -1.57,
        "asks": 0.0114,
        "time": 1.08,
        "speaker": 0.142,
        "other_speaker": -0.569,
        "user": -0.0514,
        "assistant": -0.399,
        "user_me": 0.754,
        "assistant_me": -0.381,
        "user_length": -0.233,
        "assistant_length": -0.555,
        "named": 0.891,
    },
)
"""For texts with a vector alone: of a provider's model, or of a question without words."""

WORDS = _weights(
    {"base": -3.58, "words": 5.8, "covered": -3.28},
    {
        "words": 17.1,
        "covered": -17.4,
        "before": -0.0622,
        "after": 0.78,
        "second_before": 0.775,
        "second_after": 0.41,
        "answers": 1.33,
        "thread": 2.82,
        "second_thread": 0.111,
        "asks": -0.525,
        "time": 3.67,
        "speaker": 1.59,
        "other_speaker": 0.847,
        "user": 2.14,
        "assistant": -1.83,
        "user_me": -1.09,
        "assistant_me": 0.92,
        "length": -0.106,
        "user_length": -0.857,
        "assistant_length": -0.668,
        "named": 2.23,
    },
    {
        "base": -3.3,
        "words": 6.72,
        "covered": -4.7,
        "before": 0.101,
        "after": 0.701,
        "second_before": 0.137,
        "second_after": -0.138,
        "answers": 0.59,
        "thread": -0.945,
        "second_thread": -1.25,
        "asks": 0.0857,
        "time": 0.975,
        "speaker": 0.0928,
        "other_speaker": -0.545,
        "user": -0.168,
        "assistant": -0.384,
        "user_me": 0.954,
        "assistant_me": -0.351,
        "user_length": -0.203,
        "assistant_length": -0.536,
        "named": 0.759,
    },
)
"""For texts without a vector: text search alone, or a text that was just stored."""

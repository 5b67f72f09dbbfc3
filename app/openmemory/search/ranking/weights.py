"""The fitted weights of a search: what each feature is worth, as logits.

`benchmarks.fit` fits them on judged collections, to questions that have an answer there and as many that have none, in
large and in small stores. Nothing here is set by hand but `FLAGGED` and `RECENCY`, of which no collection knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmemory.search.ranking.features import FEATURES, PLACE

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
    `order` of texts that stand alone, those of the order if a text is part of a thread, and those of the `score`. Each
    is a vector in the order of `FEATURES`."""

    alone: Vector
    order: Vector
    thread_order: Vector
    score: Vector

    def in_threads(self) -> Weights:
        """The weights of a search in which a text is part of a thread."""
        return self._replace(order=self.thread_order)


def vector(values: Mapping[str, float]) -> Vector:
    """The weights in the order of `FEATURES`; 0 for what is not named."""
    weights = np.zeros(len(FEATURES))
    for name, value in values.items():
        weights[PLACE[name]] = value
    return weights


def _weights(
    alone: Mapping[str, float],
    order: Mapping[str, float],
    thread_order: Mapping[str, float],
    score: Mapping[str, float],
) -> Weights:
    by_hand = {"flagged": FLAGGED, "recency": RECENCY}
    return Weights(vector(alone), *(vector({**each, **by_hand}) for each in (order, thread_order, score)))


TOKENS = _weights(
    {
        "base": -3.18,
        "question": -0.838,
        "meaning": 1.48,
        "near": -0.297,
        "words": 1.15,
        "covered": 0.17,
        "tokens": 1.42,
        "said": 0.0683,
    },
    {
        "meaning": 2.69,
        "near": -2.26,
        "words": 4.59,
        "covered": -0.302,
        "tokens": 9.09,
        "said": -4.74,
        "distinct": 6.45,
        "distinct_short": -8.83,
        "before": 0.316,
        "after": 0.422,
        "second_before": 0.213,
        "second_after": 0.0865,
        "answers": 0.718,
        "thread": 2.49,
        "second_thread": -0.776,
        "asks": -0.771,
        "time": 3.94,
        "speaker": 0.775,
        "other_speaker": -0.0858,
        "user": 1.09,
        "assistant": -0.851,
        "user_me": 0.0466,
        "assistant_me": -0.0363,
        "length": -0.249,
        "user_length": -0.963,
        "assistant_length": -0.608,
        "subject": 3.67,
        "named": 3.43,
    },
    {
        "meaning": 0.811,
        "near": -0.319,
        "words": 2.39,
        "tokens": 3.76,
        "said": 0.368,
        "distinct": 22.9,
        "distinct_short": -23.1,
        "before": 0.061,
        "after": 0.427,
        "second_before": 0.356,
        "second_after": 0.429,
        "answers": 0.58,
        "thread": 1.8,
        "second_thread": -0.408,
        "asks": -0.599,
        "time": 3.81,
        "speaker": 0.348,
        "other_speaker": -0.457,
        "user": 1.21,
        "assistant": -0.943,
        "user_me": 0.268,
        "assistant_me": -0.209,
        "length": 0.386,
        "user_length": -1.41,
        "assistant_length": -0.674,
        "named": -2.56,
    },
    {
        "base": -3.16,
        "question": -0.98,
        "meaning": 2.02,
        "near": -0.871,
        "words": 0.354,
        "tokens": 2.74,
        "said": -0.636,
        "before": 0.098,
        "after": 0.185,
        "second_before": -0.177,
        "second_after": -0.107,
        "answers": 0.405,
        "thread": -0.514,
        "second_thread": -1.38,
        "asks": -0.114,
        "time": 0.813,
        "speaker": 0.144,
        "other_speaker": -0.486,
        "user": 0.213,
        "assistant": -0.334,
        "user_me": 0.866,
        "assistant_me": 0.268,
        "user_length": -0.404,
        "assistant_length": -0.467,
        "subject": 2.45,
        "named": 1.82,
    },
)
"""For texts whose tokens were compared with the question's."""

VECTORS = _weights(
    {"base": -3.04, "question": -0.872, "meaning": 1.65, "near": -0.326, "words": 2.03, "covered": -0.273},
    {
        "meaning": 3.86,
        "near": -2.53,
        "words": 9.68,
        "covered": -5.72,
        "before": 0.634,
        "after": 0.552,
        "second_before": 0.248,
        "second_after": -0.221,
        "answers": 0.999,
        "thread": 2.92,
        "second_thread": -0.844,
        "asks": -0.718,
        "time": 3.93,
        "speaker": 1.19,
        "other_speaker": 0.204,
        "user": 1.22,
        "assistant": -0.951,
        "user_me": -0.0127,
        "assistant_me": 0.00989,
        "length": -0.0455,
        "user_length": -0.845,
        "assistant_length": -0.68,
        "subject": 3.52,
        "named": 3.54,
    },
    {
        "meaning": 1.39,
        "near": -0.13,
        "words": 9.01,
        "covered": -7.04,
        "before": 0.738,
        "after": 0.745,
        "second_before": 0.337,
        "second_after": 0.136,
        "answers": 0.987,
        "thread": 2.57,
        "second_thread": -0.644,
        "asks": -0.518,
        "time": 3.85,
        "speaker": 0.367,
        "other_speaker": -0.482,
        "user": 1.42,
        "assistant": -1.11,
        "length": 0.521,
        "user_length": -1.26,
        "assistant_length": -0.795,
        "named": -1.77,
    },
    {
        "base": -2.77,
        "question": -1.14,
        "meaning": 2.37,
        "near": -0.905,
        "words": 2.13,
        "covered": -1.39,
        "before": -0.0263,
        "after": 0.19,
        "second_before": -0.0478,
        "second_after": -0.196,
        "answers": 0.577,
        "thread": -0.543,
        "second_thread": -1.35,
        "asks": 0.00788,
        "time": 1.02,
        "speaker": 0.255,
        "other_speaker": -0.526,
        "user": 0.0364,
        "assistant": -0.402,
        "user_me": 0.862,
        "assistant_me": 0.518,
        "user_length": -0.108,
        "assistant_length": -0.562,
        "subject": 2.45,
        "named": 1.85,
    },
)
"""For texts with a vector alone: of a provider's model, or of a question without words."""

WORDS = _weights(
    {"base": -3.59, "words": 5.93, "covered": -3.43},
    {
        "words": 17.5,
        "covered": -14.3,
        "before": -0.052,
        "after": 0.873,
        "second_before": 0.717,
        "second_after": 0.72,
        "answers": 1.15,
        "thread": 2.62,
        "second_thread": -0.0328,
        "asks": -0.574,
        "time": 3.63,
        "speaker": 1.37,
        "other_speaker": 0.572,
        "user": 1.16,
        "assistant": -0.827,
        "user_me": -0.185,
        "assistant_me": 0.133,
        "length": -0.299,
        "user_length": -0.0718,
        "assistant_length": -0.591,
        "subject": 4.18,
        "named": 3.86,
    },
    {
        "words": 14.9,
        "covered": -12.3,
        "before": 0.0256,
        "after": 0.984,
        "second_before": 0.765,
        "second_after": 0.539,
        "answers": 1.04,
        "thread": 2.24,
        "second_thread": 0.219,
        "asks": -0.436,
        "time": 3.69,
        "speaker": 0.327,
        "other_speaker": -0.442,
        "user": 1.46,
        "assistant": -1.04,
        "user_me": -0.0715,
        "assistant_me": 0.0514,
        "length": 0.546,
        "user_length": -0.794,
        "assistant_length": -0.744,
        "named": -6.47,
    },
    {
        "base": -3.4,
        "words": 6,
        "covered": -4.08,
        "before": 0.168,
        "after": 0.693,
        "second_before": 0.336,
        "second_after": 0.0335,
        "answers": 0.478,
        "thread": -1.04,
        "second_thread": -1.08,
        "asks": 0.151,
        "time": 0.78,
        "speaker": 0.247,
        "other_speaker": -0.401,
        "user": 0.444,
        "assistant": -0.187,
        "user_me": 0.599,
        "assistant_me": -0.196,
        "user_length": -0.424,
        "assistant_length": -0.262,
        "subject": 3.04,
        "named": 2.1,
    },
)
"""For texts without a vector: text search alone, or a text that was just stored."""

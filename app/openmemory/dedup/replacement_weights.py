"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""

from __future__ import annotations

import hashlib

USUAL_NEARNESS = 1.75
"""Stands for a nearness that is not known."""

UNSURE_FROM = 0.67
"""The probability from which both texts are shown side by side."""

REPLACES_FROM = 0.90
"""The probability from which the older text is marked."""

BIAS = -3.77
WEIGHTS = {
    "near": 2.18,
    "nearer": -0.94,
    "changed": 2.28,
    "now": 1.96,
    "changed_apart": 1.14,
    "now_apart": 0.40,
    "near_apart": 1.69,
    "apart": -1.43,
    "ended": 0.32,
    "once": 0.45,
    "once_changed": 2.07,
    "framed": 0.74,
    "value": 0.28,
    "once_value": 0.77,
    "subject": 1.03,
    "overlap": 0.70,
    "negated": 0.38,
    "contrary": -0.99,
    "own": -0.53,
    "elsewhere": -0.83,
    "other_person": -0.90,
    "other_number": -1.04,
    "changed_elsewhere": 2.33,
    "many": -1.59,
    "more": -1.08,
    "adding": -0.16,
    "asks": 0.55,
    "planned": -0.50,
    "former": -0.22,
    "happened": -0.42,
    "happened_before": -1.37,
    "longer": 1.37,
}
"""The weights of the features."""


def digest() -> str:
    """The digest of these weights. Pairs that were compared under another digest are compared again."""
    weights = (USUAL_NEARNESS, UNSURE_FROM, REPLACES_FROM, BIAS, sorted(WEIGHTS.items()))
    return hashlib.sha256(repr(weights).encode()).hexdigest()

"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""

from __future__ import annotations

USUAL_COSINE = 0.65
"""Stands for a cosine that is not known."""

UNSURE_FROM = 0.22
"""The probability from which both texts are shown side by side."""

REPLACES_FROM = 0.67
"""The probability from which the older text is marked."""

BIAS = -4.90
WEIGHTS = {
    "cosine": 4.72,
    "changed": 4.52,
    "now": 3.31,
    "ended": 0.61,
    "once": -0.06,
    "once_changed": 1.67,
    "framed": 1.93,
    "value": -0.44,
    "once_value": 1.21,
    "subject": 1.32,
    "overlap": 0.29,
    "negated": 3.36,
    "contrary": -0.87,
    "own": -0.34,
    "elsewhere": -1.65,
    "other_person": -0.09,
    "other_number": -1.53,
    "changed_elsewhere": 1.72,
    "many": -1.69,
    "more": -1.77,
    "adding": -0.99,
    "asks": -0.68,
    "planned": -0.79,
    "former": -0.71,
    "happened": -0.27,
    "happened_before": -1.44,
    "longer": 0.71,
}
"""The weights of the features."""

"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""

from __future__ import annotations

USUAL_COSINE = 0.65
"""Stands for a cosine that is not known."""

UNSURE_FROM = 0.21
"""The probability from which both texts are shown side by side."""

REPLACES_FROM = 0.65
"""The probability from which the older text is marked."""

BIAS = -4.94
WEIGHTS = {
    "cosine": 4.75,
    "changed": 4.48,
    "now": 3.32,
    "ended": 0.63,
    "once": -0.05,
    "once_changed": 1.68,
    "framed": 1.96,
    "value": -0.42,
    "once_value": 1.20,
    "subject": 1.26,
    "overlap": 0.30,
    "negated": 3.36,
    "contrary": -0.86,
    "own": -0.33,
    "elsewhere": -1.63,
    "other_person": -0.09,
    "other_number": -1.53,
    "changed_elsewhere": 1.72,
    "many": -1.68,
    "more": -1.78,
    "adding": -0.99,
    "asks": -0.67,
    "planned": -0.78,
    "former": -0.70,
    "happened": -0.26,
    "happened_before": -1.45,
    "longer": 0.68,
}
"""The weights of the features."""

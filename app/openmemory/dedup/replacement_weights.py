"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""

from __future__ import annotations

USUAL_NEARNESS = 1.75
"""Stands for a nearness that is not known."""

UNSURE_FROM = 0.80
"""The probability from which both texts are shown side by side."""

REPLACES_FROM = 0.91
"""The probability from which the older text is marked."""

BIAS = -3.24
WEIGHTS = {
    "near": 2.13,
    "nearer": -0.93,
    "changed": 2.00,
    "now": 1.81,
    "changed_apart": 1.63,
    "now_apart": 0.48,
    "near_apart": 1.23,
    "apart": -1.13,
    "ended": -0.01,
    "once": 0.08,
    "once_changed": 1.89,
    "framed": 0.60,
    "value": 0.42,
    "once_value": 0.56,
    "subject": 0.87,
    "overlap": 0.93,
    "negated": 0.26,
    "contrary": -1.07,
    "own": -0.56,
    "elsewhere": -1.20,
    "other_person": -0.88,
    "other_number": -1.01,
    "changed_elsewhere": 2.20,
    "many": -0.97,
    "more": -0.90,
    "adding": -0.20,
    "asks": 0.47,
    "planned": -0.58,
    "former": -0.35,
    "happened": -0.41,
    "happened_before": -1.48,
    "longer": 1.30,
}
"""The weights of the features."""

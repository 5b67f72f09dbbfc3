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
    "changed_apart": 1.62,
    "now_apart": 0.49,
    "near_apart": 1.18,
    "apart": -1.11,
    "ended": -0.01,
    "once": 0.08,
    "once_changed": 1.89,
    "framed": 0.61,
    "value": 0.43,
    "once_value": 0.55,
    "subject": 0.87,
    "overlap": 0.93,
    "negated": 0.27,
    "contrary": -1.06,
    "own": -0.54,
    "elsewhere": -1.19,
    "other_person": -0.87,
    "other_number": -1.00,
    "changed_elsewhere": 2.20,
    "many": -0.96,
    "more": -0.90,
    "adding": -0.20,
    "asks": 0.47,
    "planned": -0.58,
    "former": -0.35,
    "happened": -0.39,
    "happened_before": -1.48,
    "longer": 1.31,
}
"""The weights of the features."""

"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""

from __future__ import annotations

USUAL_NEARNESS = 1.75
"""Stands for a nearness that is not known."""

UNSURE_FROM = 0.67
"""The probability from which both texts are shown side by side."""

REPLACES_FROM = 0.90
"""The probability from which the older text is marked."""

BIAS = -3.77
WEIGHTS = {
    "near": 2.18,
    "nearer": -0.96,
    "changed": 2.33,
    "now": 1.96,
    "changed_apart": 1.14,
    "now_apart": 0.41,
    "near_apart": 1.69,
    "apart": -1.43,
    "ended": 0.31,
    "once": 0.45,
    "once_changed": 2.05,
    "framed": 0.74,
    "value": 0.34,
    "once_value": 0.74,
    "subject": 1.01,
    "overlap": 0.69,
    "negated": 0.39,
    "contrary": -1.00,
    "own": -0.54,
    "elsewhere": -0.82,
    "other_person": -0.90,
    "other_number": -1.02,
    "changed_elsewhere": 2.33,
    "many": -1.58,
    "more": -1.07,
    "adding": -0.16,
    "asks": 0.55,
    "planned": -0.51,
    "former": -0.23,
    "happened": -0.42,
    "happened_before": -1.38,
    "longer": 1.39,
}
"""The weights of the features."""

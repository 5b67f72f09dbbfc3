"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""

from __future__ import annotations

USUAL_COSINE = 0.66
"""Stands for a cosine that is not known."""

UNSURE_FROM = 0.45
"""The probability from which both texts are shown side by side."""

REPLACES_FROM = 0.90
"""The probability from which the older text is marked."""

BIAS = -4.32
WEIGHTS = {
    "cosine": 4.19,
    "changed": 4.00,
    "now": 2.97,
    "changed_apart": 1.20,
    "now_apart": -0.25,
    "cosine_apart": 1.18,
    "apart": 0.42,
    "ended": -0.01,
    "once": -0.07,
    "once_changed": 1.73,
    "framed": 0.67,
    "value": 0.12,
    "once_value": 1.10,
    "subject": 1.31,
    "overlap": 1.22,
    "negated": 2.22,
    "contrary": -0.79,
    "own": -0.55,
    "elsewhere": -1.65,
    "other_person": 0.31,
    "other_number": -1.22,
    "changed_elsewhere": 0.72,
    "many": -1.04,
    "more": -1.48,
    "adding": -0.17,
    "asks": -0.48,
    "planned": -0.16,
    "former": -0.46,
    "happened": -0.51,
    "happened_before": -1.15,
    "longer": 0.44,
}
"""The weights of the features."""

"""The weights of `replacement`, as `python -m benchmarks.replaced --fit` prints them."""

from __future__ import annotations

USUAL_COSINE = 0.65
"""Stands for a cosine that is not known."""

UNSURE_FROM = 0.45
"""The probability from which both texts are shown side by side."""

REPLACES_FROM = 0.89
"""The probability from which the older text is marked."""

BIAS = -5.08
WEIGHTS = {
    "cosine": 4.91,
    "changed": 4.21,
    "now": 3.14,
    "changed_apart": 1.08,
    "now_apart": -0.26,
    "cosine_apart": 1.03,
    "apart": 0.73,
    "ended": 0.05,
    "once": -0.00,
    "once_changed": 1.73,
    "framed": 1.50,
    "value": -0.17,
    "once_value": 1.09,
    "subject": 1.41,
    "overlap": 1.02,
    "negated": 2.33,
    "contrary": -0.81,
    "own": -0.44,
    "elsewhere": -1.80,
    "other_person": 0.25,
    "other_number": -1.12,
    "changed_elsewhere": 0.95,
    "many": -1.42,
    "more": -1.69,
    "adding": -0.95,
    "asks": -0.62,
    "planned": -0.82,
    "former": -0.83,
    "happened": -0.19,
    "happened_before": -1.40,
    "longer": 0.52,
}
"""The weights of the features."""

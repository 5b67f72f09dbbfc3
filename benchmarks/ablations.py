"""Searches without one of their ingredients each, to see what it is worth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from openmemory.index.engine import index
from openmemory.search import context, fusion, late_interaction, query_terms, service, threads


def _words_alone(_: object, words: object) -> fusion.DenseWeight:
    return fusion.DenseWeight(0.0 if words else 1.0, 0, 0.0, 0.0, False)


ABLATIONS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "no focus": lambda: patch.object(query_terms, "MAX_QUERY_WORDS", 0),
    "no neighbours": lambda: patch.object(threads, "NEIGHBOUR_WEIGHT", (0.0, 0.0)),
    "no thread": lambda: patch.object(threads, "THREAD_WEIGHT", 0.0),
    "no late interaction": lambda: patch.object(late_interaction, "MAX_WEIGHT", 0.0),
    "no times": lambda: patch.object(service, "names_a_time", lambda _: False),
    "no windows": lambda: patch.object(index, "best", lambda first, _, limit: list(first)[:limit]),
    "no floor": lambda: patch.object(context, "FLOORS", {}),
    "no tilt": lambda: patch.object(fusion, "TILT", 0.0),
    "words only": lambda: patch.object(fusion, "dense_share", _words_alone),
}
"""By the name of what is left out: focus (the query without common words for the model), what neighbours and threads
add, the question's tokens, named times, all windows of a long text but the first, the floor of the model, the tilt of
the weights to the arm that stands out, and the model altogether."""

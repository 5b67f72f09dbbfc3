"""Searches without one of their ingredients each, to see what it is worth."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from unittest.mock import patch

from openmemory.index.engine import index
from openmemory.search import candidates, context, fusion, late_interaction, names, query_analysis, service, threads


def _words_alone(_: object, words: object) -> float:
    return 0.0 if words else 1.0


ABLATIONS: dict[str, Callable[[], AbstractContextManager[object]]] = {
    "words from PostgreSQL": lambda: patch.object(candidates, "is_served_by_index", lambda *_: False),
    "no focus": lambda: patch.object(query_analysis, "MAX_QUERY_WORDS", 0),
    "no names": lambda: patch.object(names, "NAMES_WEIGHT", 0.0),
    "no neighbours": lambda: patch.object(threads, "NEIGHBOUR_WEIGHT", (0.0, 0.0)),
    "no context": lambda: patch.object(late_interaction, "CONTEXT", 0),
    "no late interaction": lambda: patch.object(late_interaction, "MAX_WEIGHT", 0.0),
    "no times": lambda: patch.object(service, "names_a_time", lambda _: False),
    "no windows": lambda: patch.object(index, "best", lambda first, _, limit: list(first)[:limit]),
    "no floor": lambda: patch.object(context, "FLOORS", {}),
    "words only": lambda: patch.object(fusion, "dense_share", _words_alone),
}
"""By the name of what is left out: focus (the query without common words for the model), what neighbours in a
thread add, the memories before a short one when its tokens are compared, the question's tokens, named times, all
windows of a long text but the first, the floor of the model, and the model altogether."""

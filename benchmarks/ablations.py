"""Searches without one of their ingredients each, to see what it is worth."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from unittest.mock import patch

from openmemory.index.engine import index
from openmemory.search import service
from openmemory.search.candidates import query_analysis, retrieval
from openmemory.search.ranking import late_interaction, linear_model
from openmemory.search.ranking.features import BESIDE, PLACE
from openmemory.search.ranking.weights import Weights

Ablation = Callable[[], AbstractContextManager[object]]


def _weightless(*names: str) -> Ablation:
    """The search in which these features weigh nothing."""

    def without() -> AbstractContextManager[object]:
        stack = ExitStack()
        for name in ("TOKENS", "VECTORS", "WORDS"):
            vectors = [vector.copy() for vector in getattr(linear_model, name)]
            for vector in vectors:
                vector[[PLACE[feature] for feature in names]] = 0.0
            stack.enter_context(patch.object(linear_model, name, Weights(*vectors)))
        return stack

    return without


async def _nothing(_: object, texts: Sequence[object]) -> list[None]:
    return [None] * len(texts)


ABLATIONS: dict[str, Ablation] = {
    "words from PostgreSQL": lambda: patch.object(retrieval, "is_served_by_index", lambda *_: False),
    "no focus": lambda: patch.object(query_analysis, "MAX_QUERY_WORDS", 0),
    "no names": _weightless("named"),
    "no neighbours": _weightless(*BESIDE),
    "no context": lambda: patch.object(late_interaction, "CONTEXT", 0),
    "no late interaction": lambda: patch.object(service, "late_scores", _nothing),
    "no times": lambda: patch.object(service, "names_a_time", lambda _: False),
    "no speakers": _weightless("speaker", "other_speaker", "user", "assistant", "user_me", "assistant_me"),
    "no windows": lambda: patch.object(index, "best", lambda first, _, limit: list(first)[:limit]),
}
"""By the name of what is left out: focus (the query without common words for the model), names of the best hit, what
other texts of a thread add, the memories before a short one when its tokens are compared, the question's tokens, named
times, who says it, and all windows of a long text but the first."""

"""Among which points of a shard several vectors are looked for."""

from __future__ import annotations

import qdrant_edge as edge

from openmemory.index.conditions import LABELS, LONG

FEW = 0.01
"""Share of long texts up to which beginning with them is quicker than a scan that passes over the others."""


class LongTexts:
    """Among which points of a shard a search for `more` looks: it remembers how many there are until some are written.

    Points are known by the label that ours carry.
    """

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self._known: list[edge.ConditionType] | None = None
        self._stale = True

    def written(self) -> None:
        """Points were written that may have several vectors."""
        self._stale = True

    def conditions(self) -> list[edge.ConditionType] | None:
        """What to filter by; None: there are no long texts."""
        if self._stale:
            self._stale = False
            self._known = self._look()
        return self._known

    def _look(self) -> list[edge.ConditionType] | None:
        label = edge.FieldCondition(key=LABELS, match=edge.MatchValue(LONG))
        only = edge.Filter(must=[label])
        found = self._shard.count(edge.CountRequest(exact=False, filter=only))
        # It is an estimate: only what was counted is known not to be there.
        if not found and not self._shard.count(edge.CountRequest(exact=True, filter=only)):
            return None
        return [label] if found <= FEW * self._shard.info().points_count else []

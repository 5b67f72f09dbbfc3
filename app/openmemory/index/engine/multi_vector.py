"""Selects the points of a shard that a multi-vector search reads."""

from __future__ import annotations

import qdrant_edge as edge

from openmemory.index.conditions import HAS_CHUNKS, LABELS

MAX_LONG_SHARE = 0.01
"""The share of long texts up to which starting with them is faster than a scan that skips the others."""


class MultiVectorPoints:
    """Selects the points of a shard for a search of `more`, and caches the result until the next write.

    Such points are identified by the label that our points carry.
    """

    def __init__(self, shard: edge.EdgeShard) -> None:
        self._shard = shard
        self._known: list[edge.ConditionType] | None = None
        self._stale = True

    def written(self) -> None:
        """To be called after a write of points that may be multi-vector."""
        self._stale = True

    def conditions(self) -> list[edge.ConditionType] | None:
        """The conditions to filter by. None: there are no long texts."""
        if self._stale:
            self._stale = False
            self._known = self._first_conditions()
        return self._known

    def _first_conditions(self) -> list[edge.ConditionType] | None:
        label = edge.FieldCondition(key=LABELS, match=edge.MatchValue(HAS_CHUNKS))
        only = edge.Filter(must=[label])
        found = self._shard.count(edge.CountRequest(exact=False, filter=only))
        # This is an estimate: only an exact count proves that there are none.
        if not found and not self._shard.count(edge.CountRequest(exact=True, filter=only)):
            return None
        return [label] if found <= MAX_LONG_SHARE * self._shard.info().points_count else []

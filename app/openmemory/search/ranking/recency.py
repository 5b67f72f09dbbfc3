"""The recency of a memory."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import NamedTuple

from openmemory.search.context import SearchContext


class Recency(NamedTuple):
    """The decay of a memory's recency with its age."""

    half_life: timedelta
    now: datetime

    def of(self, moment: datetime) -> float:
        """1 for a memory written just now, half as much for each half-life of age."""
        return float(0.5 ** max((self.now - moment) / self.half_life, 0.0))


def recency_of(context: SearchContext) -> Recency | None:
    """The recency that a search adds, if any."""
    return None if context.half_life is None else Recency(context.half_life, context.hour)

"""Detects that the machine's clock was set, because times computed before that are no longer valid."""

from __future__ import annotations

import time
from collections.abc import Callable

JUMP = 30.0
"""Seconds of drift from the monotonic clock between two checks above which the clock counts as set."""


class Clock:
    """Compares the time of day with the monotonic clock, which cannot be set."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def jumped(self) -> float:
        """Seconds by which the clock was set since the last check, forward or back; 0 if it was not set."""
        offset = self._wall() - self._monotonic()
        jump = offset - self._offset
        if abs(jump) < JUMP:
            return 0.0
        self._offset = offset
        return jump

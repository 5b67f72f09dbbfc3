"""Noticing that the machine's clock was set: times that were computed before it mean something else after it."""

from __future__ import annotations

import time
from collections.abc import Callable

JUMP = 30.0
"""Seconds by which the clock may drift from the monotonic one between two looks before it counts as set."""


class Clock:
    """Compares the time of day with the monotonic clock, which nobody sets."""

    def __init__(self, wall: Callable[[], float] = time.time, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._offset = wall() - monotonic()

    def jumped(self) -> float:
        """Seconds by which the clock was set since the last look, forward or back; 0 when it was not."""
        offset = self._wall() - self._monotonic()
        jump = offset - self._offset
        if abs(jump) < JUMP:
            return 0.0
        self._offset = offset
        return jump

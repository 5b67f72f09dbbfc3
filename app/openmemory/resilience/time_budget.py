"""A bound on the CPU time of work that foreign text makes long."""

from __future__ import annotations

import time


class OutOfTimeError(Exception):
    """The work took longer than its budget."""


class TimeBudget:
    """The CPU time that the calling thread may spend on a text. Time in which other threads run does not count."""

    def __init__(self, seconds: float) -> None:
        self._end = time.thread_time() + seconds

    def check(self) -> None:
        """Call between the steps of the work.

        Raises:
            OutOfTimeError: the time is used up.
        """
        if time.thread_time() >= self._end:
            raise OutOfTimeError

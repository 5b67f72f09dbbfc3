"""Signal handling: the first signal stops the process gracefully, the next one at once."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

log = logging.getLogger(__name__)

PATIENCE = 4.5
"""Seconds after which the process ends, even if not everything has closed. Nothing that was acknowledged depends on
closing."""
_SAME_KEYSTROKE = 0.5
"""Seconds within which signals count as one: a terminal and a wrapper such as `uv run` both pass on one Ctrl-C."""


class Stopping:
    """Stops a task on a signal. Create it in that task: until `end` is called, stopping cancels the task."""

    def __init__(self) -> None:
        self.requested_at: float | None = None
        self._end: Callable[[], object] | None = None
        self._last: Callable[[], object] | None = None
        self._task = asyncio.current_task()

    @contextmanager
    def on_signals(self) -> Iterator[None]:
        """Handles signals while the block runs, and suppresses the cancellation that a signal requested."""
        loop = asyncio.get_running_loop()
        numbers = [signal.SIGINT, signal.SIGTERM]
        # Under nohup a closed terminal is ignored; otherwise it stops the process like the other signals.
        if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)
        for number in numbers:
            loop.add_signal_handler(number, self._handle_signal)
        try:
            yield
        except asyncio.CancelledError:
            if self.requested_at is None:
                raise
        finally:
            for number in numbers:
                loop.remove_signal_handler(number)

    def end(self, how: Callable[[], object], *, at_last: Callable[[], object] | None = None) -> None:
        """Makes stopping call `how` from now on. `at_last` is called when the process is forced to end."""
        self._end, self._last = how, at_last
        if self.requested_at is not None:
            how()

    def _handle_signal(self) -> None:
        now = time.monotonic()
        if self.requested_at is not None:
            if now - self.requested_at > _SAME_KEYSTROKE:
                self._exit(1)
            return
        self.requested_at = now
        deadline = threading.Timer(PATIENCE, self._give_up)
        deadline.daemon = True
        deadline.start()
        log.info("stopping")
        if self._end is not None:
            self._end()
        elif self._task is not None:
            self._task.cancel()

    def _give_up(self) -> None:
        log.warning("not everything closed in time; the process ends now")
        self._exit(0)

    def _exit(self, code: int) -> None:
        try:
            if self._last is not None:
                self._last()
        finally:
            os._exit(code)

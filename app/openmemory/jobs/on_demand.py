"""A job that runs on request."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

log = logging.getLogger(__name__)


class OnDemand:
    """Runs a job, one run at a time in this process. All requests during a run lead to one more run after it."""

    def __init__(self, job: Callable[[], Awaitable[object]], name: str) -> None:
        self._job = job
        self._name = name
        self._asked = asyncio.Event()
        self._task = asyncio.create_task(self._work(), name=name)

    def ask(self) -> None:
        """Requests a run now, or as soon as the current run ends."""
        self._asked.set()

    async def close(self) -> None:
        """Cancels the current run and stops."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _work(self) -> None:
        while not self._task.cancelling():  # a cancellation may get lost among the errors of an outage
            await self._asked.wait()
            self._asked.clear()
            try:
                await self._job()
            except asyncio.CancelledError:
                if self._task.cancelling():
                    raise
                log.exception("%s: what it waited for was cancelled", self._name)
            except Exception:
                log.exception("%s: failed", self._name)

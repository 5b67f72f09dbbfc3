"""Checks of dependencies: bounded in time, shared by all who ask at once, and kept for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from pydantic import BaseModel
from sqlalchemy import exc

from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import OpenMemoryError
from openmemory.index.port import IndexUnavailable
from openmemory.llm.port import LlmUnavailable

_KEEP_FAILURE = 5.0
"""The longest time in seconds that a failure is kept. Anybody may ask, and not everybody may load a provider."""


class Check(BaseModel):
    """One dependency: `ok` and what is known of it, or `error` in words."""

    ok: bool
    detail: dict[str, Any] = {}
    error: str | None = None
    milliseconds: float


class Probe:
    """Checks one dependency by a call that raises while it fails, and returns what is known of it.

    A result is kept for `keep` seconds, as long as `of` returns the same object. A call ends after `within` seconds.
    """

    def __init__(
        self,
        work: Callable[[], Awaitable[dict[str, Any]]],
        *,
        within: float,
        keep: float = 0.0,
        of: Callable[[], object] = lambda: None,
    ) -> None:
        self._work = work
        self._within = within
        self._keep = keep
        self._of = of
        self._asked: object = None
        self._running: asyncio.Task[Check] | None = None
        self._until = 0.0

    async def check(self, *, anew: bool = False) -> Check:
        """Returns the result of a call, or of one that was made a moment ago. `anew`: only of one that is not over."""
        if self._running is not None and self._running.done() and (anew or time.monotonic() >= self._until):
            self._running = None
        if self._running is None or self._asked is not self._of():
            self._asked = self._of()
            self._running = asyncio.create_task(self._run(), name="health-probe")
        return await asyncio.shield(self._running)

    async def _run(self) -> Check:
        started = time.perf_counter()
        detail: dict[str, Any] = {}
        error = None
        try:
            async with asyncio.timeout(self._within):
                detail = await self._work()
        except TimeoutError:
            error = f"no answer within {self._within:g} s"
        except OpenMemoryError as failure:
            error = failure.message
        except (IndexUnavailable, EmbedderUnavailable, LlmUnavailable) as failure:
            error = str(failure) or type(failure).__name__
        except exc.DBAPIError as failure:  # such as a role that may not write
            error = str(failure.orig).strip().partition("\n")[0]
        self._until = time.monotonic() + (self._keep if error is None else min(self._keep, _KEEP_FAILURE))
        milliseconds = round((time.perf_counter() - started) * 1e3, 2)
        return Check(ok=error is None, detail=detail, error=error, milliseconds=milliseconds)

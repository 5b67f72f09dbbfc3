"""A circuit breaker: after repeated failures a dependency is not called again until it had time to recover."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from enum import StrEnum

log = logging.getLogger(__name__)


class BreakerState(StrEnum):
    """closed: calls pass; open: calls are rejected; half_open: one call, the probe, decides whether it closes."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitOpen(Exception):
    """The dependency failed too often to be called now. `retry_after` is in seconds."""

    def __init__(self, name: str, retry_after: float) -> None:
        super().__init__(f"{name} is not asked for another {retry_after:.1f} s after repeated failures")
        self.name = name
        self.retry_after = retry_after


class CircuitBreaker:
    """Counts consecutive failures of one dependency. After `failures` of them, calls are rejected for `reset_after`
    seconds.

    Put the deadline inside the guard, so that a call that hangs counts as a failure. A cancelled call does not count,
    because it says nothing about the dependency. Exceptions other than `trips_on` pass and count as an answer.

    `probe` is a call that raises while the dependency is down. With it, callers never test the dependency themselves:
    the probe runs in the background, every `reset_after` seconds until it succeeds. It must not hang. `on_close` is
    called when the circuit closes.
    """

    def __init__(
        self,
        name: str,
        *,
        failures: int = 3,
        reset_after: float = 5.0,
        clock: Callable[[], float] = time.monotonic,
        trips_on: type[Exception] | tuple[type[Exception], ...] = Exception,
        probe: Callable[[], Awaitable[object]] | None = None,
        on_close: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._threshold = failures
        self._reset_after = reset_after
        self._clock = clock
        self._trips_on = trips_on
        self._probe = probe
        self._on_close = on_close
        self._recovery: asyncio.Task[None] | None = None
        self._failures = 0
        self._open_until: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """The current state of the circuit."""
        if self._open_until is None:
            return BreakerState.CLOSED
        return BreakerState.HALF_OPEN if self._clock() >= self._open_until else BreakerState.OPEN

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Run the body and record its outcome.

        Raises:
            CircuitOpen: immediately, without running the body.
        """
        probe = self._admit()
        try:
            yield
        except self._trips_on:
            self._failed(probe)
            raise
        except Exception:
            self._answered(probe)
            raise
        else:
            self._answered(probe)
        finally:
            if probe:
                self._probing = False

    async def close(self) -> None:
        """Stop the background probes. An open circuit stays open."""
        if self._recovery is not None:
            self._recovery.cancel()
            await asyncio.wait([self._recovery])
            self._recovery = None

    async def ask_again(self) -> None:
        """If the circuit is open, probe now, and close it if that succeeds. Raises what the probe raises."""
        if self._open_until is None or self._probe is None:
            return
        await self._probe()
        await self.close()
        self._answered(probe=True)

    def _admit(self) -> bool:
        """Returns True if the caller is the probe. Rejects calls while the circuit is open, or a probe is running."""
        if self._open_until is None:
            return False
        left = self._open_until - self._clock()
        if left > 0 or self._probing or self._probe is not None:
            raise CircuitOpen(self.name, max(left, 0.0))
        self._probing = True
        return True

    def _failed(self, probe: bool) -> None:
        # Calls admitted before the circuit opened may fail much later: only the probe may extend the wait.
        if self._open_until is not None and not probe:
            return
        self._failures += 1
        if probe or self._failures >= self._threshold:
            self._open_until = self._clock() + self._reset_after
            if self._probe is not None and self._recovery is None:
                log.warning("%s does not answer; it is asked again every %g s", self.name, self._reset_after)
                self._recovery = asyncio.create_task(self._recover(self._probe), name=f"probe-{self.name}")

    def _answered(self, probe: bool) -> None:
        if self._open_until is None or probe:
            closing = self._open_until is not None
            self._failures = 0
            self._open_until = None
            if closing and self._on_close is not None:
                self._on_close()

    async def _recover(self, probe: Callable[[], Awaitable[object]]) -> None:
        while True:
            await asyncio.sleep(self._reset_after)
            try:
                await probe()
            except self._trips_on:
                self._open_until = self._clock() + self._reset_after
                continue
            except Exception:  # an answer, as in `guard`: the next caller sees it
                log.exception("the probe of %s failed", self.name)
            break
        log.info("%s answers again", self.name)
        self._recovery = None
        self._answered(probe=True)

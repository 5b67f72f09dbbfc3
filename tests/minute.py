"""Limits count by the minute of the clock: what a test counts has to lie in one."""

from __future__ import annotations

import asyncio
import time

_MINUTE = 60


async def early_in_a_minute(seconds: float = 10) -> None:
    """Return when so many seconds of the running minute are left, soon after its end otherwise."""
    left = _MINUTE - time.time() % _MINUTE
    if left < seconds:
        await asyncio.sleep(left + 0.05)

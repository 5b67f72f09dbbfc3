"""Whose turn it is: few archives are written or read at a time, and of one principal or user only one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from openmemory.errors import Unavailable

GRACE = 10.0
"""Seconds in which nothing need come of what is being sent."""
LEAST = 16 * 1024
"""Bytes a second that must come after that, on average."""
_SILENCE = 60.0
"""Seconds without anything, however much came before."""
_LONGEST = 3600.0
"""Seconds that it may take in all."""


@dataclass(slots=True)
class _Own:
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    waiting: int = 0


class Turns:
    """So many at once, one of each. Who comes first is first; who has one already stands in nobody's way."""

    def __init__(self, at_once: int, patience: float) -> None:
        """`patience`: seconds that one more waits."""
        self._all = asyncio.Semaphore(at_once)
        self._own: dict[str, _Own] = {}
        self._patience = patience

    @asynccontextmanager
    async def turn(self, of: str) -> AsyncIterator[None]:
        """A turn of somebody.

        Raises:
            Unavailable: it did not come in time.
        """
        own = self._own.setdefault(of, _Own())
        own.waiting += 1
        try:
            await self._acquire(own)
            try:
                yield
            finally:
                self._all.release()
                own.lock.release()
        finally:
            own.waiting -= 1
            if not own.waiting:
                self._own.pop(of, None)

    async def _acquire(self, own: _Own) -> None:
        try:
            async with asyncio.timeout(self._patience):
                await own.lock.acquire()
                try:
                    await self._all.acquire()
                except BaseException:
                    own.lock.release()
                    raise
        except TimeoutError:
            words = "Other archives are being made or brought in."
            raise Unavailable(words, retry_after=self._patience, code="backup_busy") from None


@asynccontextmanager
async def paced() -> AsyncIterator[Callable[[int], None]]:
    """Ends what is being sent too slowly. To be told how many bytes came, whenever some did.

    Raises:
        Unavailable: it came too slowly.
    """
    clock = asyncio.get_running_loop().time
    start, received = clock(), 0
    limit = asyncio.timeout(GRACE)

    def came(size: int) -> None:
        nonlocal received
        received += size
        if size and not limit.expired():
            limit.reschedule(min(start + GRACE + received / LEAST, clock() + _SILENCE, start + _LONGEST))

    try:
        async with limit:
            yield came
    except TimeoutError:
        if not limit.expired():
            raise
        words = f"The archive came too slowly; at least {LEAST // 1024} KB a second must come, all of it in an hour."
        raise Unavailable(words, retry_after=1, code="upload_too_slow") from None

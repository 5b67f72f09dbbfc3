"""Admission control: only a few large files are written or read at a time, and only one per principal or user."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager

from openmemory.errors import Unavailable

GRACE = 10.0
"""Seconds at the start of an upload without a minimum rate."""
MIN_UPLOAD_RATE = 16 * 1024
"""Minimum average rate after that, in bytes per second."""
_SILENCE = 60.0
"""Maximum number of seconds without data, however much arrived before."""
_MAX_UPLOAD_SECONDS = 3600.0
"""Maximum total duration of an upload, in seconds."""


class Admission:
    """Admits a limited number at once, one per key, first come, first served. A key's next request blocks no others."""

    def __init__(
        self,
        at_once: int,
        patience: float,
        *,
        busy: str = "Other archives are being exported or imported. Try again later.",
        code: str = "backup_busy",
    ) -> None:
        """`patience`: maximum number of seconds to wait for admission. `busy`: the message of the refusal."""
        self._all = asyncio.Semaphore(at_once)
        self._own: dict[str, asyncio.Lock] = {}
        self._users: Counter[str] = Counter()
        """The number of requests that hold or await the lock of a key."""
        self._patience = patience
        self._busy = busy
        self._code = code

    @asynccontextmanager
    async def turn(self, of: str) -> AsyncIterator[None]:
        """Holds an admission for the key `of` while the block runs.

        Raises:
            Unavailable: it was not admitted in time.
        """
        self._users[of] += 1
        try:
            async with AsyncExitStack() as held:
                try:
                    async with asyncio.timeout(self._patience):
                        await held.enter_async_context(self._own.setdefault(of, asyncio.Lock()))
                        await held.enter_async_context(self._all)
                except TimeoutError:
                    raise Unavailable(self._busy, retry_after=self._patience, code=self._code) from None
                yield
        finally:
            self._users[of] -= 1
            if not self._users[of]:
                del self._users[of], self._own[of]


@asynccontextmanager
async def paced() -> AsyncIterator[Callable[[int], None]]:
    """Ends an upload that is too slow. Yields a callback that must be called with the number of bytes received.

    Raises:
        Unavailable: the upload is too slow.
    """
    clock = asyncio.get_running_loop().time
    start, received = clock(), 0
    limit = asyncio.timeout(GRACE)

    def came(size: int) -> None:
        nonlocal received
        received += size
        if size and not limit.expired():
            limit.reschedule(
                min(start + GRACE + received / MIN_UPLOAD_RATE, clock() + _SILENCE, start + _MAX_UPLOAD_SECONDS)
            )

    try:
        async with limit:
            yield came
    except TimeoutError:
        if not limit.expired():
            raise
        words = (
            f"The upload is too slow: it needs at least {MIN_UPLOAD_RATE // 1024} KB per second, and at most one hour."
        )
        raise Unavailable(words, retry_after=1, code="upload_too_slow") from None

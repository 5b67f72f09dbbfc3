"""Waits for the result of a capture and reports its progress."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from uuid import UUID

from sqlalchemy import select

from openmemory.capture.models import Capture
from openmemory.capture.status import WAITS, Status
from openmemory.capture.worker import Worker
from openmemory.database.engine import Database

FIRST_LOOK, LAST_LOOK = 0.5, 4.0
"""Seconds between two checks of a capture that another process may hold: doubled from the first to the last."""

Moved = Callable[[Status, int], Awaitable[None]]
"""Called with the status of a capture and the number of the running attempt, or 0 if none is running."""


async def nobody(_: Status, __: int) -> None:
    """Ignores the progress."""


async def wait_for_attempt(
    database: Database, worker: Worker, room: asyncio.Semaphore, id_: UUID, *, seconds: float, moved: Moved
) -> None:
    """Waits until an attempt ends. Attempts of this process report at once; those of other processes are polled.

    `room` limits how many callers query the database at once.
    """
    until, pause = time.monotonic() + seconds, FIRST_LOOK
    with worker.watching(id_) as steps:
        await moved(Status.PENDING, 0)
        while (remaining := until - time.monotonic()) > 0:
            try:
                async with asyncio.timeout(min(remaining, pause)):
                    attempt = await steps.get()
            except TimeoutError:
                async with room:
                    attempt = await _attempt(database, id_)
                pause = min(LAST_LOOK, 2 * pause)
                if attempt == 0:
                    continue
            if attempt is None:
                return
            await moved(Status.WORKING, attempt)


async def _attempt(database: Database, id_: UUID) -> int | None:
    """The number of the attempt that any process runs now; 0 before the first one; None if an attempt has ended."""
    query = select(Capture.status, Capture.error, Capture.attempts).where(Capture.id == id_)
    async with database.statement() as tx:
        row = (await tx.execute(query)).one_or_none()
    if row is None or row.status not in WAITS or (row.status == Status.PENDING and row.error is not None):
        return None
    return int(row.attempts) if row.status == Status.WORKING else 0

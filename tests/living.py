"""Contexts that live in a task of their own: pytest leaves a fixture in another task than it entered it in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TypeVar

T = TypeVar("T")


@asynccontextmanager
async def living(context: AbstractAsyncContextManager[T], seconds: float = 60) -> AsyncIterator[T]:
    """What a context gives, within so many seconds; it is entered and left by one task."""
    opened: asyncio.Future[T] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def live() -> None:
        async with context as given:
            opened.set_result(given)
            await over.wait()

    life = asyncio.create_task(live())
    done, _ = await asyncio.wait([opened, life], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    if life in done:  # it could not be entered, and says why
        await life
    if not done:
        life.cancel()
        await asyncio.wait([life])
        raise TimeoutError(f"not entered within {seconds:g} s")
    yield opened.result()
    over.set()
    await life

from __future__ import annotations

import asyncio

import pytest

from openmemory.index.lazy import LazyIndex
from openmemory.index.port import IndexUnavailable


class Opened:
    """An index of which only its being open matters."""

    def __init__(self) -> None:
        self.closed = False

    async def flush(self) -> None:
        return None

    async def close(self) -> None:
        self.closed = True


async def test_who_gives_up_waiting_does_not_end_the_opening_for_the_others() -> None:
    ready = asyncio.Event()
    openings = 0

    async def opening() -> Opened:
        nonlocal openings
        openings += 1
        await ready.wait()
        return Opened()

    lazy = LazyIndex(opening)  # type: ignore[arg-type]
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05):
            await lazy.flush()
    waiting = asyncio.create_task(lazy.flush())
    ready.set()
    await waiting
    assert openings == 1


async def test_an_opening_that_closing_meets_is_closed_too() -> None:
    opened = Opened()

    async def opening() -> Opened:
        await asyncio.sleep(0.05)
        return opened

    lazy = LazyIndex(opening)  # type: ignore[arg-type]
    waiting = asyncio.create_task(lazy.flush())
    await asyncio.sleep(0)
    await lazy.close()
    await waiting
    assert opened.closed


async def test_what_is_closed_is_not_opened() -> None:
    async def opening() -> Opened:
        raise AssertionError("opened after it was closed")

    lazy = LazyIndex(opening)  # type: ignore[arg-type]
    await lazy.close()
    with pytest.raises(IndexUnavailable):
        await lazy.open()

"""Reading ahead in a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

T = TypeVar("T")


async def ahead(stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same stream, its next item always being fetched while the last one is looked at. Closing it closes both."""
    coming = asyncio.ensure_future(anext(stream, _END))
    try:
        while (item := await coming) is not _END:
            coming = asyncio.ensure_future(anext(stream, _END))
            yield item  # type: ignore[misc]
    finally:
        coming.cancel()
        await asyncio.wait([coming])
        await stream.aclose()


class _End:
    """What a stream gives when it has ended."""


_END = _End()

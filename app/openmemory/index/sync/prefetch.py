"""Reads ahead in a stream."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

T = TypeVar("T")


async def ahead(stream: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """The same stream, with the next item fetched while the current one is processed. Closing it closes both."""
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
    """Marks the end of a stream."""


_END = _End()

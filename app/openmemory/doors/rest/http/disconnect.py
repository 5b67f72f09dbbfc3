"""Cancels work when the client that requested it closes its connection."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Returns the result of `work`, which is cancelled when the client closes its connection. The body must have been
    read.

    Raises:
        ClientDisconnect: the client closed its connection.
    """
    try:
        async with asyncio.timeout(None) as patience:
            watching = asyncio.create_task(_watch(request, patience))
            try:
                return await work
            finally:
                watching.cancel()
    except TimeoutError:
        if patience.expired():
            raise ClientDisconnect from None
        raise


async def _watch(request: Request, patience: asyncio.Timeout) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
    patience.reschedule(asyncio.get_running_loop().time())

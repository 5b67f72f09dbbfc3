"""Fetches data from another server, with retries and size limits. The responses are treated as untrusted data."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from openmemory.errors import Forbidden, Invalid, NotFound, OpenMemoryError, TooLarge, Unauthenticated, Unavailable

if TYPE_CHECKING:
    from httpx import AsyncClient, Response

_TRIES = 4
_PAUSE = 0.5
"""Seconds before the second attempt. The pause doubles before each following one."""
_AGAIN = (429, 500, 502, 503, 504)
_REFUSALS: dict[int, type[OpenMemoryError]] = {401: Unauthenticated, 403: Forbidden, 404: NotFound}


async def fetched(http: AsyncClient, method: str, path: str, *, most: int, **request: Any) -> bytes:
    """The server's response, at most `most` bytes. Retries if the server does not answer.

    Raises:
        Unavailable: the server did not answer any attempt.
        NotFound: the server has no such resource.
        TooLarge: the response is larger than `most`.
        OpenMemoryError: the server rejected the request.
    """
    for attempt in range(_TRIES):
        try:
            async with _request(http, method, path, **request) as answer:
                return b"".join([piece async for piece in _limited_chunks(answer, most)])
        except Unavailable:
            if attempt == _TRIES - 1:
                raise
        await asyncio.sleep(_PAUSE * 2**attempt)
    raise AssertionError("unreachable")


async def download(http: AsyncClient, method: str, path: str, to: Path, *, most: int, **request: Any) -> None:
    """Writes a response of at most `most` bytes to a file. Makes only one attempt."""
    async with _request(http, method, path, **request) as answer:
        with to.open("wb") as file:
            async for piece in _limited_chunks(answer, most):
                file.write(piece)


@asynccontextmanager
async def _request(
    http: AsyncClient, method: str, path: str, *, params: dict[str, Any] | None = None, body: Any = None
) -> AsyncIterator[Response]:
    import httpx

    try:
        async with http.stream(method, path, params=params, json=body) as answer:
            if answer.status_code in _AGAIN:
                raise Unavailable(f"{http.base_url} responded with {answer.status_code} to {path}", retry_after=_PAUSE)
            if not answer.is_success:
                kind = _REFUSALS.get(answer.status_code, Invalid if answer.is_redirect else OpenMemoryError)
                words = f"{http.base_url} responded with {answer.status_code} to {path}"
                raise Invalid("source", words) if kind is Invalid else kind(words)
            yield answer
    except httpx.InvalidURL as error:
        raise Invalid("source", f"must be a URL: {error}") from error
    except httpx.TransportError as error:
        raise Unavailable(f"{http.base_url}: {error or type(error).__name__}", retry_after=_PAUSE) from error


async def _limited_chunks(answer: Response, most: int) -> AsyncIterator[bytes]:
    remaining = most
    async for piece in answer.aiter_bytes(1 << 20):
        remaining -= len(piece)
        if remaining < 0:
            raise TooLarge("source", f"the server's response must not exceed {most:,} bytes")
        yield piece

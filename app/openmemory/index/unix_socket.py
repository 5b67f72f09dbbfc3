"""HTTP over a UNIX socket, on the streams of asyncio.

httpx opens UNIX sockets by anyio, which has the event loop call `Future.set_result` as soon as data has come. If a
request is cancelled at the moment in which its answer comes, uvloop calls that of the cancelled future. No request is
harmed, but the log gets the traceback of an `InvalidStateError`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpcore
import httpx


def unix_socket_transport(path: Path) -> httpx.AsyncHTTPTransport:
    """A transport of httpx that sends all requests to the server on this socket, with the usual limits of httpx."""
    transport = httpx.AsyncHTTPTransport(verify=False)  # no connection uses TLS: the server is on this machine
    transport._pool = httpcore.AsyncConnectionPool(
        max_connections=100,
        max_keepalive_connections=20,
        keepalive_expiry=5.0,
        uds=str(path),
        network_backend=_UnixSockets(),
    )
    return transport


# The names of the arguments below are those of httpcore.
class _UnixSockets(httpcore.AsyncNetworkBackend):
    async def connect_unix_socket(
        self,
        path: str,
        timeout: float | None = None,  # noqa: ASYNC109
        socket_options: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> httpcore.AsyncNetworkStream:
        with _converted(httpcore.ConnectTimeout, httpcore.ConnectError):
            async with asyncio.timeout(timeout):
                return _UnixStream(*await asyncio.open_unix_connection(path))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class _UnixStream(httpcore.AsyncNetworkStream):
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109
        with _converted(httpcore.ReadTimeout, httpcore.ReadError):
            async with asyncio.timeout(timeout):
                return await self._reader.read(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109
        with _converted(httpcore.WriteTimeout, httpcore.WriteError):
            async with asyncio.timeout(timeout):
                self._writer.write(buffer)
                await self._writer.drain()

    async def aclose(self) -> None:
        self._writer.close()

    def get_extra_info(self, info: str) -> Any:
        # The pool asks an idle connection for this, to know if the server has closed it.
        return self._reader.at_eof() if info == "is_readable" else None


@contextmanager
def _converted(late: type[Exception], failed: type[Exception]) -> Iterator[None]:
    """Raises the errors of a stream as those of httpcore."""
    try:
        yield
    except TimeoutError as error:
        raise late("the deadline passed") from error
    except OSError as error:
        raise failed(str(error)) from error

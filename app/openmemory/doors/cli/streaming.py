"""An HTTP transport to an application in this process that streams bodies in both directions.

`httpx.ASGITransport` returns a response only when it is complete, and so holds all of it in memory.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import httpx
from starlette.types import ASGIApp, Message, Scope

_WAITING = 4
"""Maximum number of response chunks that wait to be read."""


class StreamingTransport(httpx.AsyncBaseTransport):
    """Passes requests to an application, each in a task of its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Sends a request. Returns the response as soon as its headers have arrived.

        Raises:
            httpx.ReadError: the application failed before it answered.
        """
        exchange = _Exchange(cast(httpx.AsyncByteStream, request.stream))
        exchange.task = asyncio.create_task(exchange.run(self._app, _scope(request)), name=f"{request.method} in here")
        try:
            status, headers = await exchange.started
        except asyncio.CancelledError:
            exchange.task.cancel()
            raise
        return httpx.Response(status, headers=headers, stream=exchange)


class _Exchange(httpx.AsyncByteStream):
    """One request and its response, as a stream to read."""

    def __init__(self, body: httpx.AsyncByteStream) -> None:
        self.started: asyncio.Future[tuple[int, Any]] = asyncio.get_running_loop().create_future()
        self.task: asyncio.Task[None] | None = None
        self._body = body.__aiter__()
        self._sent = False
        self._gone = asyncio.Event()
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(_WAITING)
        self._failed = False

    async def run(self, app: ASGIApp, scope: Scope) -> None:
        """Runs the application for this request."""
        try:
            await app(scope, self._receive, self._send)
        except Exception as error:  # the application has logged it
            self._failed = True
            if not self.started.done():
                self.started.set_exception(httpx.ReadError(f"the request failed: {type(error).__name__}"))
        await self._pieces.put(None)

    async def _receive(self) -> Message:
        if self._sent:
            await self._gone.wait()
            return {"type": "http.disconnect"}
        try:
            return {"type": "http.request", "body": await anext(self._body), "more_body": True}
        except StopAsyncIteration:
            self._sent = True
            return {"type": "http.request", "body": b"", "more_body": False}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.started.set_result((message["status"], message.get("headers", [])))
        elif message["type"] == "http.response.body" and (data := message.get("body", b"")):
            await self._pieces.put(data)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The chunks of the response."""
        while (data := await self._pieces.get()) is not None:
            yield data
        if self._failed:
            raise httpx.ReadError("the answer broke off")

    async def aclose(self) -> None:
        """Ends the exchange, even if the response was not read completely."""
        self._gone.set()
        if self.task is not None and not self.task.done():
            if self._pieces.empty():
                await asyncio.sleep(0)  # the task may be about to end
            self.task.cancel()
            await asyncio.gather(self.task, return_exceptions=True)


def _scope(request: httpx.Request) -> Scope:
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "scheme": request.url.scheme,
        "path": request.url.path,
        "raw_path": request.url.raw_path.split(b"?")[0],
        "query_string": request.url.query,
        "server": (request.url.host, request.url.port),
        "client": ("127.0.0.1", 123),
        "root_path": "",
    }

"""Answers HEAD as GET does, without the body (RFC 9110, 9.3.2). Monitors and link checkers ask this way."""

from __future__ import annotations

import asyncio

from starlette.types import ASGIApp, Message, Receive, Scope, Send


class HeadAsGet:
    """Pure ASGI middleware: what it wraps sees a GET, and for a stream a client that leaves after the headers.

    The addresses of MCP are left out: they are no documents, and a GET of theirs opens a session.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http" or scope["method"] != "HEAD" or scope["path"].startswith("/mcp"):
            await self._app(scope, receive, send)
            return
        answered = asyncio.Event()

        async def receive_until_answered() -> Message:
            receiving, ended = asyncio.ensure_future(receive()), asyncio.ensure_future(answered.wait())
            try:
                await asyncio.wait((receiving, ended), return_when=asyncio.FIRST_COMPLETED)
                return receiving.result() if receiving.done() else {"type": "http.disconnect"}
            finally:
                receiving.cancel()
                ended.cancel()

        async def send_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
            elif not answered.is_set():
                answered.set()
                await send({"type": "http.response.body", "body": b""})

        await self._app({**scope, "method": "GET"}, receive_until_answered, send_headers)

"""Counts REST and MCP requests and measures how long they take."""

from __future__ import annotations

import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmemory.telemetry.traffic import UNMATCHED, Traffic

_WENT_AWAY = 499
"""The status recorded for a request whose client did not wait for the response."""


class Measure:
    """Pure ASGI middleware. It stands before the guard, so it also sees what the guard refuses."""

    def __init__(self, app: ASGIApp, traffic: Traffic) -> None:
        self._app = app
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes one request on and counts it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = time.perf_counter()
        status, counted = _WENT_AWAY, False

        async def counting_send(message: Message) -> None:
            nonlocal status, counted
            if message["type"] == "http.response.start":
                status = message["status"]
                if _is_stream(message):
                    counted = True
                    self._count(scope, status, started)
            await send(message)

        try:
            await self._app(scope, receive, counting_send)
        finally:
            if not counted:
                self._count(scope, status, started)

    def _count(self, scope: Scope, status: int, started: float) -> None:
        template: str = getattr(scope.get("route"), "path", UNMATCHED)
        self._traffic.request(template, scope["method"], status, time.perf_counter() - started)


def _is_stream(message: Message) -> bool:
    return any(
        name == b"content-type" and value.startswith(b"text/event-stream") for name, value in message.get("headers", ())
    )

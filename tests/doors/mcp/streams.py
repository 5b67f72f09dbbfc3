"""SSE without an SDK, so that every message can be sent where a test wants it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx

CLIENT = {"capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Stream:
    """An SSE session as a client of the year 2024 holds it."""

    def __init__(self, http: httpx.AsyncClient, response: httpx.Response) -> None:
        self._http = http
        self.response = response
        self._lines = response.aiter_lines()
        self.messages = ""

    async def event(self) -> tuple[str, str]:
        """The next event's name and data."""
        name = data = ""
        async with asyncio.timeout(20):
            async for line in self._lines:
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    data = line[6:]
                elif not line and name:
                    return name, data
        raise AssertionError("the stream ended")

    async def ended(self) -> None:
        """Waits until the service ends the stream."""
        async for _ in self._lines:
            pass

    async def post(self, message: dict[str, Any], where: str = "") -> httpx.Response:
        return await self._http.post(where or self.messages, json={"jsonrpc": "2.0"} | message)

    async def answer(self, message: dict[str, Any], where: str = "") -> dict[str, Any]:
        """The answer to a request."""
        accepted = await self.post(message, where)
        assert accepted.status_code == 202, accepted.text
        name, data = await self.event()
        body: dict[str, Any] = json.loads(data)
        assert (name, body["id"]) == ("message", message["id"])
        return body

    async def shake_hands(self) -> dict[str, Any]:
        """Open the session at the oldest version."""
        opening = {"id": 0, "method": "initialize", "params": {"protocolVersion": "2024-11-05"} | CLIENT}
        answer = await self.answer(opening)
        assert (await self.post({"method": "notifications/initialized"})).status_code == 202
        result: dict[str, Any] = answer["result"]
        return result


@asynccontextmanager
async def stream_of(http: httpx.AsyncClient, path: str) -> AsyncIterator[Stream]:
    async with http.stream("GET", path, headers={"Accept": "text/event-stream"}) as response:
        assert response.status_code == 200
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = Stream(http, response)
        name, stream.messages = await stream.event()
        assert name == "endpoint"
        yield stream


def tool(name: str, **arguments: Any) -> dict[str, Any]:
    return {"id": 7, "method": "tools/call", "params": {"name": name, "arguments": arguments}}

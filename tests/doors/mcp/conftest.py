"""The product behind a real socket, in the event loop of the tests, and what speaks to it without an SDK."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from itertools import count
from typing import Any

import httpx
import pytest

from openmemory.doors.server.application import create_app
from openmemory.doors.server.web import Server, public
from openmemory.services import Services
from tests.listening import one_socket, stop_accepting

ACCEPT = {"Accept": "application/json, text/event-stream"}

Call = Callable[..., Awaitable[dict[str, Any]]]


@asynccontextmanager
async def serving(services: Services, listening: socket.socket | None = None) -> AsyncIterator[str]:
    """The URL of the application over these services, while the block runs; on a socket that is bound already, or
    another."""
    if listening is None:
        listening = one_socket()
    server = Server(public(create_app(services), services.settings, patience=1))
    running = asyncio.create_task(server.serve(sockets=[listening]))
    try:
        async with asyncio.timeout(30):
            while not server.started:
                assert not running.done(), "the server did not start"
                await asyncio.sleep(0.01)
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        await stop_accepting([listening])
        server.should_exit = True
        await asyncio.wait_for(running, 30)


@pytest.fixture(scope="module")
async def url(services: Services) -> AsyncIterator[str]:
    """The address of the product. Its jobs end with the file: other tests look at what no job has touched."""
    async with serving(services) as address:
        yield address


@pytest.fixture(scope="module")
async def http(url: str) -> AsyncIterator[httpx.AsyncClient]:
    """A plain HTTP client of the product."""
    async with httpx.AsyncClient(base_url=url, headers=ACCEPT, timeout=20) as client:
        yield client


@pytest.fixture(scope="module")
def ask(http: httpx.AsyncClient) -> Callable[..., Awaitable[httpx.Response]]:
    """Sends one request of a handshake version over streamable HTTP: `await ask("tools/list", path="/mcp")`."""
    numbers = count(1)

    async def send(
        method: str, params: dict[str, Any] | None = None, *, path: str = "/mcp", **more: Any
    ) -> httpx.Response:
        message: dict[str, Any] = {"jsonrpc": "2.0", "id": next(numbers), "method": method}
        if params is not None:
            message["params"] = params
        return await http.post(path, json=message, **more)

    return send


@pytest.fixture
def call(ask: Callable[..., Awaitable[httpx.Response]], new_user: str) -> Call:
    """Calls a tool as an app of the test's own user and returns the result: `await call("list_memories", limit=3)`."""

    async def run(_tool: str, _app: str = "claude", _user: str = new_user, **arguments: Any) -> dict[str, Any]:
        answer = await ask("tools/call", {"name": _tool, "arguments": arguments}, path=f"/mcp/{_app}/http/{_user}")
        body = answer.json()
        assert "result" in body, body
        result: dict[str, Any] = body["result"]
        return result

    return run


@pytest.fixture
def failure(call: Call) -> Callable[..., Awaitable[str]]:
    """Calls a tool that must fail, and returns what the assistant is told."""

    async def run(_tool: str, **arguments: Any) -> str:
        result = await call(_tool, **arguments)
        assert result["isError"] is True, result
        assert "structuredContent" not in result
        [content] = result["content"]
        return str(content["text"])

    return run


@pytest.fixture
def remember(call: Call) -> Callable[..., Awaitable[str]]:
    """Adds a memory through the tool and returns its id."""

    async def add(text: str, **more: Any) -> str:
        result = await call("add_memories", text=text, **more)
        return str(result["structuredContent"]["results"][0]["id"])

    return add


@pytest.fixture
def lines(call: Call) -> Callable[..., Awaitable[list[str]]]:
    """Calls a tool in the compact form and returns the lines that an assistant reads."""

    async def run(_tool: str, **arguments: Any) -> list[str]:
        result = await call(_tool, format="compact", **arguments)
        assert not result.get("isError"), result
        [content] = result["content"]
        return str(content["text"]).split("\n")

    return run

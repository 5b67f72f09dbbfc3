"""The SDK's client held to one version of the protocol: it offers that version and no other, so what is negotiated and
then spoken is really that one. A session of the SDK takes any version back that it knows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import TracebackType
from typing import Any, Self

import httpx2
from mcp import Client
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest


class _Offering:
    """A stream to the server on which the handshake offers one version."""

    def __init__(self, stream: Any, version: str) -> None:
        self._stream = stream
        self._version = version

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, JSONRPCRequest) and message.method == "initialize":
            params = dict(message.params or {}) | {"protocolVersion": self._version}
            item = SessionMessage(message.model_copy(update={"params": params}), item.metadata)
        await self._stream.send(item)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        await self._stream.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        return await self._stream.__aexit__(kind, error, trace)


@asynccontextmanager
async def _offering(transport: AbstractAsyncContextManager[Any], version: str) -> AsyncIterator[Any]:
    async with transport as (incoming, outgoing):
        yield incoming, _Offering(outgoing, version)


@asynccontextmanager
async def speaking(version: str, url: str) -> AsyncIterator[tuple[Client, list[httpx2.Request]]]:
    """A client at an address of SSE or streamable HTTP, and the requests that it sends over the latter."""
    requests: list[httpx2.Request] = []

    async def note(request: httpx2.Request) -> None:
        requests.append(request)

    if "/sse" in url:
        transport = _offering(sse_client(url), version)
        async with Client(transport, mode="legacy", read_timeout_seconds=30) as client:
            yield client, requests
        return
    async with httpx2.AsyncClient(event_hooks={"request": [note]}, timeout=30) as http:
        streams = streamable_http_client(url, http_client=http)
        handshake = version < "2026"
        server = _offering(streams, version) if handshake else streams
        async with Client(server, mode="legacy" if handshake else version, read_timeout_seconds=30) as client:
            yield client, requests

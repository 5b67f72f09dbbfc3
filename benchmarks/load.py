"""A lean load generator: HTTP/1.1 keep-alive and SSE over raw streams, so that the clients cost little themselves."""

from __future__ import annotations

import asyncio
import json
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from urllib.parse import urlsplit


@dataclass(frozen=True)
class Figures:
    """Latency in milliseconds and throughput of one run; `client` is the CPU of this process per request, in ms."""

    p50: float
    p95: float
    rate: float
    client: float

    def __str__(self) -> str:
        return (
            f"p50 {self.p50:7.2f}  p95 {self.p95:7.2f} ms  {self.rate:7.1f}/s  (client {self.client:.2f} ms CPU each)"
        )


class Connection:
    """One keep-alive connection."""

    def __init__(self, url: str) -> None:
        self._url = urlsplit(url)

    async def open(self) -> None:
        self._reader, self._writer = await asyncio.open_connection(self._url.hostname, self._url.port)

    async def close(self) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def get(self, path: str, headers: str = "") -> bytes:
        """One request; the body of its answer. Anything but 2xx raises."""
        return await self._exchange("GET", path, headers, b"")

    async def post(self, path: str, body: bytes, headers: str = "") -> bytes:
        """One request with JSON; the body of its answer. Anything but 2xx raises."""
        headers += (
            "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n"
            f"Content-Length: {len(body)}\r\n"
        )
        return await self._exchange("POST", path, headers, body)

    async def _exchange(self, method: str, path: str, headers: str, body: bytes) -> bytes:
        head = f"{method} {path} HTTP/1.1\r\nHost: {self._url.netloc}\r\n{headers}\r\n"
        self._writer.write(head.encode() + body)
        head = await self._reader.readuntil(b"\r\n\r\n")
        status = int(head[9:12])
        answer = b""
        lower = head.lower()
        if (at := lower.find(b"content-length:")) >= 0:
            answer = await self._reader.readexactly(int(lower[at + 15 : lower.index(b"\r\n", at)]))
        elif b"transfer-encoding: chunked" in lower:
            while size := int(await self._reader.readline(), 16):
                answer += await self._reader.readexactly(size)
                await self._reader.readline()
            await self._reader.readline()
        if not 200 <= status < 300:
            raise RuntimeError(f"{path} answered {status}: {answer[:300]!r}")
        return answer


class Rest:
    """A REST client."""

    def __init__(self, url: str, user: str, *, method: str = "hybrid") -> None:
        """`method`: how searches have to be answered."""
        self._connection = Connection(url)
        self._user = user
        self._method = method

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()

    async def search(self, query: str) -> None:
        body = {"user_id": self._user, "query": query, "app": "bench"}
        answer = json.loads(await self._connection.post("/api/v1/memories/search", json.dumps(body).encode()))
        assert answer["search_method"] == self._method, answer

    async def add(self, text: str) -> None:
        body = {"user_id": self._user, "text": text, "app": "bench", "infer": False}
        assert json.loads(await self._connection.post("/api/v1/memories", json.dumps(body).encode()))["id"]


class StreamableHttp:
    """An MCP client over streamable HTTP, sessionless protocol."""

    VERSION = "2026-07-28"

    def __init__(self, url: str, path: str) -> None:
        self._connection = Connection(url)
        self._path = path
        self._id = 0

    async def open(self) -> None:
        await self._connection.open()

    async def close(self) -> None:
        await self._connection.close()

    async def call(self, tool: str, arguments: dict) -> dict:
        self._id += 1
        meta = {
            "io.modelcontextprotocol/protocolVersion": self.VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "bench", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        message = {
            "jsonrpc": "2.0",
            "id": self._id,
            "method": "tools/call",
            "params": {"name": tool, "arguments": arguments, "_meta": meta},
        }
        headers = f"MCP-Protocol-Version: {self.VERSION}\r\nMcp-Method: tools/call\r\nMcp-Name: {tool}\r\n"
        return checked(json.loads(await self._connection.post(self._path, json.dumps(message).encode(), headers)))

    async def search(self, query: str) -> None:
        await self.call("search_memory", {"query": query})

    async def add(self, text: str) -> None:
        await self.call("add_memories", {"text": text, "infer": False})


class Sse:
    """An MCP client over SSE, with the handshake of 2024-11-05."""

    def __init__(self, url: str, path: str) -> None:
        self._url = url
        self._path = path
        self._posts = Connection(url)
        self._id = 0
        self._waiting: dict[int, asyncio.Future[dict]] = {}

    async def open(self) -> None:
        parts = urlsplit(self._url)
        self._reader, self._writer = await asyncio.open_connection(parts.hostname, parts.port)
        self._writer.write(
            f"GET {self._path} HTTP/1.1\r\nHost: {parts.netloc}\r\nAccept: text/event-stream\r\n\r\n".encode()
        )
        await self._reader.readuntil(b"\r\n\r\n")
        endpoint: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._events(endpoint))
        self._endpoint = await endpoint
        await self._posts.open()
        hello = {
            "protocolVersion": "2024-11-05",
            "capabilities": {},
            "clientInfo": {"name": "bench", "version": "1"},
        }
        await self._request("initialize", hello)
        await self._posts.post(self._endpoint, b'{"jsonrpc":"2.0","method":"notifications/initialized"}')

    async def close(self) -> None:
        self._task.cancel()
        self._writer.close()
        await self._posts.close()

    async def _events(self, endpoint: asyncio.Future[str]) -> None:
        while True:
            line = (await self._reader.readline()).strip()
            if not line.startswith(b"data:"):
                continue
            data = line[5:].strip()
            if not endpoint.done():
                endpoint.set_result(data.decode())
            else:
                message = json.loads(data)
                self._waiting.pop(message["id"]).set_result(message)

    async def _request(self, method: str, params: dict) -> dict:
        self._id += 1
        answer = self._waiting[self._id] = asyncio.get_running_loop().create_future()
        message = {"jsonrpc": "2.0", "id": self._id, "method": method, "params": params}
        await self._posts.post(self._endpoint, json.dumps(message).encode())
        return await answer

    async def call(self, tool: str, arguments: dict) -> dict:
        return checked(await self._request("tools/call", {"name": tool, "arguments": arguments}))

    async def search(self, query: str) -> None:
        await self.call("search_memory", {"query": query})

    async def add(self, text: str) -> None:
        await self.call("add_memories", {"text": text, "infer": False})


def checked(message: dict) -> dict:
    """The result of a call that succeeded; otherwise raises."""
    if "result" not in message or message["result"].get("isError"):
        raise RuntimeError(f"a call failed: {json.dumps(message)[:300]}")
    return message["result"]


async def measure(
    clients: list, work: Callable[[object, str], Awaitable[None]], inputs: Iterator[str], count: int
) -> Figures:
    """`count` requests shared by the clients, each sending its next when its last is answered."""
    for client in clients:
        await client.open()
    for client in clients:
        await work(client, next(inputs))
    milliseconds: list[float] = []
    left = count

    async def run(client: object) -> None:
        nonlocal left
        while left > 0:
            left -= 1
            text = next(inputs)
            started = time.perf_counter()
            await work(client, text)
            milliseconds.append((time.perf_counter() - started) * 1e3)

    cpu = _cpu()
    started = time.perf_counter()
    await asyncio.gather(*(run(client) for client in clients))
    elapsed = time.perf_counter() - started
    cpu = _cpu() - cpu
    for client in clients:
        await client.close()
    return Figures(
        statistics.median(milliseconds),
        statistics.quantiles(milliseconds, n=20)[18],
        len(milliseconds) / elapsed,
        cpu * 1e3 / len(milliseconds),
    )


def _cpu() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime

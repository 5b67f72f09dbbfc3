"""A TCP proxy between the service and an HTTP server, which fails in the way that it is told to."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import struct
import threading
from collections.abc import Coroutine
from contextlib import suppress
from enum import StrEnum
from typing import Any

from tests.listening import bound, stop_accepting


class Mode(StrEnum):
    """What happens to requests."""

    PASS = "pass"
    REFUSE = "refuse"
    """The port is closed, and every connection with it."""
    HANG = "hang"
    """Requests are taken and never answered, not even when the fault is over."""
    SLOW = "slow"
    """Answers come `seconds` late."""
    ERROR_500 = "error_500"
    READ_ONLY = "read_only"
    """Writes are forbidden (403), reads pass."""
    OUT_OF_DISK = "out_of_disk"
    """Writes fail as on a full disk (500), reads pass."""
    GARBAGE = "garbage"
    """HTTP 200 with something that is no JSON."""
    CUT = "cut"
    """Half of the answer, then a reset. The server has done what it was asked."""
    WRONG_DIMENSION = "wrong_dimension"
    """The collection claims another dimension and refuses our vectors (400)."""


_WRITE = re.compile(rb"(PUT|DELETE|PATCH) |POST \S+/points/delete|POST /collections/aliases")
_VECTORS = re.compile(rb"PUT \S+/points\?|POST \S+/points/query")
_COLLECTION = re.compile(rb"GET /collections/[^/ ]+ ")


class Proxy:
    """Listens on a port of its own, in a thread of this process; `faulted` counts the requests that it spoilt."""

    def __init__(self, upstream: int) -> None:
        # Never listens: while the proxy refuses, no other process is given the port.
        self._reserved = bound(0)
        self.port = self._reserved.getsockname()[1]
        self.faulted = 0
        self._upstream = upstream
        self._mode = Mode.PASS
        self._seconds = 0.0
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy")
        self._thread.start()
        self._run(self._listen())

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def set(self, mode: Mode, seconds: float = 0.0) -> None:
        """From now on fail like this."""
        self._run(self._switch(mode, seconds))

    def close(self) -> None:
        """Close the port and every connection."""
        self._run(self._shut())
        self._run(self._end())
        self._reserved.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _run(self, what: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(what, self._loop).result(20)

    async def _switch(self, mode: Mode, seconds: float) -> None:
        self._mode, self._seconds = mode, seconds
        if mode is Mode.REFUSE:
            await self._shut()
        elif self._server is None:
            await self._listen()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, reuse_port=True)

    async def _shut(self) -> None:
        if self._server is not None:
            await stop_accepting(self._server.sockets)
            for one in self._server.sockets:
                one.shutdown(socket.SHUT_RDWR)  # as in `Wire.switch`: a process that starts has a copy for a moment
            self._server.close()
            self._server = None
        for writer in self._writers:
            writer.transport.abort()

    async def _end(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            while (request := await _message(reader)) is not None:
                await self._exchange(request, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # One of the two went away; or we are closed, and the stream's callback knows no cancelled task.
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _exchange(self, request: bytes, writer: asyncio.StreamWriter) -> None:
        mode, spoilt = self._mode, self._spoilt(request)
        if spoilt is not None:
            self.faulted += 1
            writer.write(spoilt)
            await writer.drain()
            return
        if mode is Mode.HANG:
            self.faulted += 1
            await asyncio.Event().wait()
        if mode is Mode.SLOW:
            self.faulted += 1
            await asyncio.sleep(self._seconds)
        answer = await self._forward(request)
        if mode is Mode.CUT:
            self.faulted += 1
            writer.write(answer[: len(answer) // 2])
            await writer.drain()
            handle = writer.get_extra_info("socket")
            handle.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            raise ConnectionResetError
        if mode is Mode.WRONG_DIMENSION and _COLLECTION.match(request):
            self.faulted += 1
            answer = re.sub(rb'"size":\d+', b'"size":7', answer)
            body = answer.partition(b"\r\n\r\n")[2]
            answer = re.sub(rb"content-length: \d+", b"content-length: %d" % len(body), answer)
        writer.write(answer)
        await writer.drain()

    def _spoilt(self, request: bytes) -> bytes | None:
        """The answer that is given without asking the server; None if it is asked."""
        if self._mode is Mode.ERROR_500:
            return _error(500, "Service internal error: something broke")
        if self._mode is Mode.GARBAGE:
            return _reply(200, b"<html>It works!</html>")
        if self._mode is Mode.READ_ONLY and _WRITE.match(request):
            return _error(403, "Forbidden: Global write access is required")
        if self._mode is Mode.OUT_OF_DISK and _WRITE.match(request):
            return _error(
                500, "Service internal error: No space left on device: WAL buffer size exceeds available disk space"
            )
        if self._mode is Mode.WRONG_DIMENSION and _VECTORS.match(request):
            return _error(400, "Wrong input: Vector dimension error: expected dim: 7, got 384")
        return None

    async def _forward(self, request: bytes) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._upstream)
        try:
            writer.write(request)
            await writer.drain()
            answer = await _message(reader)
        finally:
            writer.transport.abort()
        if answer is None:
            raise ConnectionResetError
        return answer


async def _message(reader: asyncio.StreamReader) -> bytes | None:
    """One HTTP message with its body; None at the end of the stream."""
    with suppress(asyncio.IncompleteReadError):
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)\r\ncontent-length: *(\d+)", head)
        return head + (await reader.readexactly(int(length[1])) if length else b"")
    return None


def _error(status: int, words: str) -> bytes:
    return _reply(status, json.dumps({"status": {"error": words}, "time": 0.0}).encode())


def _reply(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d X\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % (status, len(body)) + body

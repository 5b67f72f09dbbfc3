"""HTTP over a UNIX socket, against a server in a thread."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvloop

from openmemory.index.unix_socket import unix_socket_transport

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


@pytest.fixture
def listening(short_folder: Path) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(short_folder / "http"))
        server.listen()
        yield server
    (short_folder / "http").unlink()


def serve(server: socket.socket, delay: float = 0.0, *, once: bool = False) -> None:
    """Answers on each connection, `once` or until it is closed."""

    def answer(connection: socket.socket) -> None:
        with suppress(OSError), connection:
            while connection.recv(4_096):
                time.sleep(delay)
                connection.sendall(ANSWER)
                if once:
                    return

    def accept() -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=answer, args=(server.accept()[0],), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()


def client(folder: Path, **more: Any) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=unix_socket_transport(folder / "http"), base_url="http://index", **more)


def test_a_request_that_is_cancelled_as_its_answer_comes_leaves_no_trace(
    listening: socket.socket, short_folder: Path
) -> None:
    """Under uvloop, as the service runs. The loop stands still until the answer has come, and cancels then."""
    serve(listening, 0.01)
    errors: list[Any] = []

    async def cancel() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: errors.append(context))
        async with client(short_folder) as http:
            for _ in range(20):
                request = asyncio.create_task(http.get("/"))
                await asyncio.sleep(0.005)
                time.sleep(0.02)  # noqa: ASYNC251 - the loop stands still
                request.cancel()
                with suppress(asyncio.CancelledError):
                    await request
            assert (await http.get("/")).text == "ok"

    uvloop.run(cancel())
    assert errors == []


async def test_a_connection_that_the_server_closed_is_opened_again(listening: socket.socket, short_folder: Path):
    serve(listening, once=True)
    async with client(short_folder) as http:
        for _ in range(3):
            assert (await http.get("/")).text == "ok"
            await asyncio.sleep(0.05)  # long enough for the end of the connection to come


async def test_many_requests_at_once_are_answered(listening: socket.socket, short_folder: Path):
    serve(listening)
    async with client(short_folder) as http:
        answers = await asyncio.gather(*(http.post("/", content=b"x" * 1_000) for _ in range(150)))
    assert {answer.text for answer in answers} == {"ok"}


async def test_failures_are_those_of_httpx(listening: socket.socket, short_folder: Path):
    nobody_answers, nobody_listens = client(short_folder, timeout=0.05), client(short_folder / "elsewhere")
    async with nobody_answers, nobody_listens:
        with pytest.raises(httpx.ReadTimeout):
            await nobody_answers.get("/")
        with pytest.raises(httpx.ConnectError):
            await nobody_listens.get("/")

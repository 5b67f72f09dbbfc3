"""The public server's protocol over real sockets, on both event loops that it may run on."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import uvloop

from openmemory.config.settings import Settings
from openmemory.doors.server.http_bounds import HEAD, HEADERS, TARGET
from openmemory.doors.server.web import Server, public
from tests.listening import one_socket

DEADLINE = 10.0
GET = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


class Wire:
    """A server in a thread, and what its application saw."""

    def __init__(self, loop_factory: Any, settings: Settings) -> None:
        self._listening = one_socket()
        self.port = self._listening.getsockname()[1]
        self.seen: list[str] = []
        self.sent = 0
        self.ended = threading.Event()
        self.streaming = threading.Event()
        self.may_answer = threading.Event()
        self.server = Server(public(self, settings, patience=1))
        self._serving = threading.Thread(target=self._run, args=(loop_factory,))

    def __enter__(self) -> Wire:
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.may_answer.set()
        self.server.should_exit = True
        self._serving.join(DEADLINE)
        assert not self._serving.is_alive()

    def _run(self, loop_factory: Any) -> None:
        with asyncio.Runner(loop_factory=loop_factory) as runner:
            runner.run(self.server.serve(sockets=[self._listening]))

    @contextmanager
    def client(self, *, window: int = 0) -> Iterator[socket.socket]:
        with socket.socket() as client:
            if window:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
            client.settimeout(DEADLINE)
            client.connect(("127.0.0.1", self.port))
            yield client

    def ask(self, request: bytes) -> tuple[int, dict[str, str], bytes]:
        """Send one request on a connection of its own; the status, headers and body of all that is answered."""
        with self.client() as client:
            client.sendall(request)
            return parsed(answer(client))

    def connections(self) -> int:
        return len(self.server.server_state.connections)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "lifespan":
            for step in ("startup", "shutdown"):
                await receive()
                await send({"type": f"lifespan.{step}.complete"})
            return
        self.seen.append(scope["path"])
        try:
            await getattr(self, "_" + (scope["path"].strip("/") or "length"))(scope, receive, send)
        finally:
            if scope["path"] != "/":
                self.ended.set()

    async def _length(self, scope: Any, receive: Any, send: Any) -> None:
        length, more = 0, True
        while more:
            message = await receive()
            if message["type"] == "http.disconnect":
                self.seen.append("left")
                return
            length, more = length + len(message["body"]), message["more_body"]
        names = [name.decode() for name, _ in scope["headers"]]
        values = {name.decode(): value.decode() for name, value in scope["headers"]}
        told = {
            "length": length, "scheme": scope["scheme"], "client": scope["client"], "headers": names, "values": values
        }  # fmt: skip
        await respond(send, json.dumps(told))

    async def _early(self, _: Any, __: Any, send: Any) -> None:
        await respond(send, "early")

    async def _waits(self, _: Any, __: Any, send: Any) -> None:
        await asyncio.to_thread(self.may_answer.wait, DEADLINE)
        await respond(send, "waited")

    async def _events(self, _: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]})
        await send({"type": "http.response.body", "body": b"data: first\n\n", "more_body": True})
        self.streaming.set()
        while (await receive())["type"] != "http.disconnect":
            continue

    async def _endless(self, _: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        gone = asyncio.create_task(receive_disconnect(receive))
        while not gone.done():
            await send({"type": "http.response.body", "body": b"x" * 65_536, "more_body": True})
            self.sent += 65_536
            await asyncio.sleep(0)

    async def _whole(self, _: Any, __: Any, send: Any) -> None:
        await respond(send, "x" * 30_000_000)


async def receive_disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue


async def respond(send: Any, text: str) -> None:
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": text.encode()})


def answer(client: socket.socket) -> bytes:
    """All that comes until the server ends the connection, which it must."""
    got = b""
    while more := client.recv(65_536):
        got += more
    return got


def ask_once(client: socket.socket) -> None:
    """One request that is answered, on a connection that is kept."""
    client.sendall(GET)
    got = b""
    while not got.endswith(b"}"):
        got += client.recv(65_536)
    assert got.startswith(b"HTTP/1.1 200 ")


def parsed(got: bytes) -> tuple[int, dict[str, str], bytes]:
    head, _, body = got.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    return int(first.split()[1]), {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}, body


@pytest.fixture(params=["asyncio", "uvloop"])
def start(request: pytest.FixtureRequest) -> Iterator[Callable[..., Wire]]:
    """Starts servers with some settings: `start(header_timeout=0.3)`; ends them after the test."""
    started: list[Wire] = []

    def run(connections: int = 1000, **http: Any) -> Wire:
        settings = Settings.model_validate({"http": http, "limits": {"connections": connections}})
        started.append(Wire(uvloop.Loop if request.param == "uvloop" else asyncio.SelectorEventLoop, settings))
        return started[-1].__enter__()

    yield run
    for wire in started:
        wire.__exit__()


@pytest.fixture
def wire(start: Callable[..., Wire]) -> Wire:
    return start()


def problem(status: int, headers: dict[str, str], body: bytes) -> tuple[int, str, str]:
    """A refusal of ours, which says that the connection ends."""
    assert headers["connection"] == "close"
    assert headers["content-type"] == "application/json"
    assert headers["x-content-type-options"] == "nosniff"
    told = json.loads(body)
    assert set(told) == {"error", "detail", "hint"}
    return status, told["error"], told["detail"]


@pytest.mark.slow
def test_a_client_that_never_says_anything_is_let_go(start: Callable[..., Wire]) -> None:
    with start(header_timeout=0.2).client() as client:
        assert answer(client) == b""


@pytest.mark.slow
@pytest.mark.parametrize("beginning", [b"G", b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"GET / HTTP/1.1\r\nX-A: b"])
def test_headers_that_do_not_come_in_time_are_no_longer_waited_for(
    start: Callable[..., Wire], beginning: bytes
) -> None:
    status, code, detail = problem(*start(header_timeout=0.2).ask(beginning))
    assert (status, code) == (408, "request_timeout")
    assert detail == "The headers did not come within 0.2 seconds (http.header_timeout)."


@pytest.mark.slow
def test_a_header_now_and_then_does_not_hold_a_connection_open(start: Callable[..., Wire]) -> None:
    with start(header_timeout=0.5).client() as client:
        client.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        client.settimeout(0.05)
        got, tries = b"", 0
        while not got:
            tries += 1
            assert tries < DEADLINE / 0.05
            try:
                got = client.recv(65_536)
            except TimeoutError:
                client.sendall(b"X-A: b\r\n")
        assert got.startswith(b"HTTP/1.1 408 ")


@pytest.mark.slow
def test_line_ends_now_and_then_do_not_hold_a_kept_connection_open(start: Callable[..., Wire]) -> None:
    with start(header_timeout=0.3).client() as client:
        ask_once(client)
        client.sendall(b"\r\n")
        assert answer(client) == b""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("request_", "code", "status"),
    [
        (b"GET /" + b"a" * TARGET + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", "target_too_long", 414),
        (b"GET /?" + b"a" * 5_000_000, "target_too_long", 414),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * HEAD + b"\r\n\r\n", "headers_too_large", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: " + b"a" * 900_000, "headers_too_large", 431),
        (b"GET / HTTP/1.1\r\n" + b"X-A: b\r\n" * (HEADERS + 1) + b"\r\n", "headers_too_large", 431),
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n" + b"X-A: b\r\n" * 100_000, "headers_too_large", 431),
        (b"\r\n" * 100_000, "headers_too_large", 431),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\n" + b"a" * 50_000 + b": b\r\n\r\n", "headers_too_large", 431),
        (b"\x16\x03\x01 this is TLS", "bad_request", 400),
        (b"GET / HTTP/1.1\r\n\r\n", "bad_request", 400),
        (GET[:-2] + b"Host: evil.example\r\n\r\n", "bad_request", 400),
        (b"GET http://evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request", 400),
        (b"GET http://localhost@evil.example/ HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request", 400),
        (b"GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request", 400),
        (b"CONNECT evil.example:443 HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request", 400),
        (b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n", "bad_request", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "bad_request", 400),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", "bad_request", 400),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nno length", "bad_request", 400),
    ],
)
def test_what_is_too_large_or_no_request_is_refused_before_the_application(
    wire: Wire, request_: bytes, code: str, status: int
) -> None:
    with wire.client() as client:
        try:
            client.sendall(request_)
        except (BrokenPipeError, ConnectionResetError):
            assert len(request_) > 4_000_000, "so little must be taken before the answer"
            return
        assert problem(*parsed(answer(client)))[:2] == (status, code)
    assert [path for path in wire.seen if path != "left"] in ([], ["/"])  # what failed in its body had begun


def test_a_request_up_to_the_limits_is_answered(wire: Wire) -> None:
    target = b"/?" + b"a" * (TARGET - 2)
    headers = b"Host: localhost\r\nConnection: close\r\n" + b"X-A: " + b"a" * 200 + b"\r\n"
    many = b"".join(b"X-%d: b\r\n" % number for number in range(HEADERS - 3))
    assert wire.ask(b"GET " + target + b" HTTP/1.1\r\n" + headers + many + b"\r\n")[0] == 200
    assert wire.ask(LAST.replace(b"GET /", b"GET http://LOCALHOST/"))[0] == 200
    assert wire.ask(b"GET / HTTP/1.0\r\n\r\n")[0] == 200


@pytest.mark.slow
@pytest.mark.parametrize("blanks", [b" ", b"\t", b" \t  "])
def test_blanks_around_a_header_value_are_not_part_of_it(wire: Wire, blanks: bytes) -> None:
    lines = (b"Host: localhost", b"Connection: close", b"X-API-Key:" + blanks + b"a key", b"Mcp-Name: x", b"X-Empty:")
    values = json.loads(
        wire.ask(b"GET / HTTP/1.1\r\n" + b"".join(line + blanks + b"\r\n" for line in lines) + b"\r\n")[2]
    )
    expected = {"host": "localhost", "connection": "close", "x-api-key": "a key", "mcp-name": "x", "x-empty": ""}
    assert values["values"] == expected


def test_an_upgrade_that_is_not_spoken_is_answered_as_a_plain_request(wire: Wire) -> None:
    upgrade = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close, Upgrade\r\nUpgrade: h2c\r\n\r\n"
    assert wire.ask(upgrade)[0] == 200


@pytest.mark.slow
def test_a_body_that_does_not_come_in_time_is_no_longer_waited_for(start: Callable[..., Wire]) -> None:
    wire = start(body_timeout=0.3)
    request = b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc"
    status, code, detail = problem(*wire.ask(request))
    assert (status, code) == (408, "request_timeout")
    assert "http.body_timeout" in detail
    until(lambda: wire.seen == ["/", "left"])


def test_a_body_has_more_time_the_more_of_it_comes(start: Callable[..., Wire]) -> None:
    wire = start(body_timeout=0.05)
    with wire.client() as client:
        client.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: 30002\r\n\r\n")
        client.sendall(b"a" * 30_000)
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):  # six times what it would have had
            client.recv(1)
        client.settimeout(DEADLINE)
        client.sendall(b"bc")
        status, _, body = parsed(answer(client))
    assert (status, json.loads(body)["length"]) == (200, 30_002)


@pytest.mark.slow
def test_a_body_that_nobody_waits_for_has_no_more_time(start: Callable[..., Wire]) -> None:
    wire = start(body_timeout=0.3)
    status, _, body = wire.ask(b"POST /early HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nabc")
    assert (status, body) == (200, b"early")


CHUNKED = b"POST / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"


def test_a_chunked_body_is_taken_in_pieces_of_any_size_and_what_is_behind_it_is_no_header(wire: Wire) -> None:
    chunks = b"1;extension=1\r\nx\r\n" * 20_000
    status, _, body = wire.ask(CHUNKED + chunks + b"0\r\nX-API-Key: late\r\n\r\n")
    assert (status, json.loads(body)["length"]) == (200, 20_000)
    assert json.loads(body)["headers"] == ["host", "connection", "transfer-encoding"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "endless", [b"0\r\n" + b"X-A: b\r\n" * 100_000, b"0\r\nX-A: " + b"a" * 900_000, b"1;" + b"a" * 900_000]
)
def test_what_comes_behind_a_body_or_between_its_pieces_has_a_limit(wire: Wire, endless: bytes) -> None:
    assert problem(*wire.ask(CHUNKED + b"1\r\nx\r\n" + endless))[:2] == (431, "headers_too_large")


@pytest.mark.slow
def test_the_answer_may_take_longer_than_the_request(start: Callable[..., Wire]) -> None:
    wire = start(header_timeout=0.1, body_timeout=0.1, write_timeout=0.1)
    with wire.client() as client:
        client.sendall(b"GET /waits HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        client.settimeout(0.5)
        with pytest.raises(TimeoutError):
            client.recv(1)
        wire.may_answer.set()
        client.settimeout(DEADLINE)
        assert parsed(answer(client))[2] == b"waited"


@pytest.mark.slow
@pytest.mark.parametrize("path", [b"/endless", b"/whole"])
def test_a_client_that_does_not_read_is_cut_off_and_holds_little_memory(
    start: Callable[..., Wire], path: bytes
) -> None:
    wire = start(write_timeout=0.5)
    with wire.client(window=4096) as client:
        client.sendall(b"GET " + path + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert wire.ended.wait(DEADLINE)
        until(lambda: wire.connections() == 0)
    assert wire.sent < 20_000_000


@pytest.mark.slow
def test_a_client_that_reads_slowly_gets_all(start: Callable[..., Wire]) -> None:
    wire = start(write_timeout=0.2)
    with wire.client() as client:
        client.sendall(b"GET /whole HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        length, pause = 0, threading.Event()
        while more := client.recv(1_000_000):
            length += len(more)
            pause.wait(0.01)
    assert length > 30_000_000


@pytest.mark.slow
@pytest.mark.parametrize("garbage", [b"garbage\r\n\r\n", b"GET / HTTP/1.1\r\nX-A: " + b"a" * 40_000, GET * 2_000])
def test_garbage_behind_a_request_does_not_cost_that_its_answer(start: Callable[..., Wire], garbage: bytes) -> None:
    wire = start(header_timeout=0.5)
    with wire.client() as client:
        client.sendall(b"GET /waits HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET + garbage)
        until(lambda: wire.seen == ["/waits"])
        wire.may_answer.set()
        got = answer(client)
    first, second, *others = got.split(b"HTTP/1.1 ")[1:]
    assert first.startswith(b"200 OK")
    assert first.endswith(b"waited")
    assert second.startswith(b"200 OK")
    assert [other[:3] for other in others if not other.startswith(b"200")] in ([], [b"408"])
    assert len(wire.seen) < 50


def test_an_event_stream_ends_with_its_connection_whatever_was_sent_behind_it(wire: Wire) -> None:
    with wire.client() as client:
        client.sendall(b"GET /events HTTP/1.1\r\nHost: localhost\r\n\r\n" + GET)
        assert wire.streaming.wait(DEADLINE)
    assert wire.ended.wait(DEADLINE)


def test_a_connection_too_many_is_told_to_come_back(start: Callable[..., Wire]) -> None:
    wire = start(connections=2)
    with wire.client() as one, wire.client() as two:
        for client in (one, two):
            ask_once(client)
        status, headers, body = wire.ask(LAST)
        assert problem(status, headers, body)[:2] == (503, "too_many_connections")
        assert int(headers["retry-after"]) > 0
        assert "limits.connections" in json.loads(body)["detail"]
    until(lambda: wire.connections() == 0)
    assert wire.ask(LAST)[0] == 200


FORWARDED = LAST[:-2] + b"X-Forwarded-For: 203.0.113.9\r\nX-Forwarded-Proto: https\r\nX-Forwarded-Host: x\r\n\r\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("proxies", "client", "scheme"),
    [
        ([], "127.0.0.1", "http"),
        (["10.0.0.0/8"], "127.0.0.1", "http"),
        (["127.0.0.1"], "203.0.113.9", "https"),
        (["127.0.0.0/8"], "203.0.113.9", "https"),
    ],
)
def test_only_a_proxy_that_is_trusted_may_say_who_asks(
    start: Callable[..., Wire], proxies: list[str], client: str, scheme: str
) -> None:
    told = json.loads(start(trusted_proxies=proxies).ask(FORWARDED)[2])
    assert (told["client"][0], told["scheme"]) == (client, scheme)


def until(condition: Callable[[], bool]) -> None:
    """Wait until the condition holds."""
    changed = threading.Event()
    for _ in range(int(DEADLINE / 0.02)):
        if condition():
            return
        changed.wait(0.02)
    raise AssertionError("the condition did not come true in time")

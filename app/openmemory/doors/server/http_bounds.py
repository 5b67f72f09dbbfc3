"""The public server's HTTP protocol: uvicorn's, with limits on what a client may send, hold open and leave unread.

The limits are here because the application sees a request only when its head is complete, and an answer only until the
transport has it. No connection has timers: the server checks all of them together.
"""

from __future__ import annotations

import json
import logging
from asyncio import BaseTransport
from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Literal

import httptools
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

log = logging.getLogger(__name__)

TARGET = 8 * 1024
"""The maximum bytes of a request target: path and query."""
HEAD = 32 * 1024
"""The maximum bytes of a request's head: its target and headers."""
HEADERS = 100

_PIPELINED = 32
"""The maximum number of requests on one connection that wait for an earlier answer. Few clients send even a second one.
"""
_SLOWEST = 1024
"""Bytes per second below which a transfer counts as stalled: slower than any network still in use."""
_LINGER_SECONDS, _LINGER_BYTES = 2.0, 1024 * 1024
"""Seconds and bytes for which input is still read and dropped after a refusal. Closing with unread bytes would take the
refusal back."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a connection: seconds for a head, a body and an unread answer; and connections of the process."""

    header_timeout: float
    body_timeout: float
    write_timeout: float
    connections: int


_Part = Literal["start", "head", "body", "end"]
"""The next thing that a client must send: the first byte of a request, more of its head, more of its body, or, after a
refusal, the end of the connection."""


@dataclass(frozen=True, slots=True)
class _Refusal:
    """An error response sent without the application, in the common format. The connection ends with it."""

    status: int
    code: str
    detail: str
    hint: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def to_http(self) -> bytes:
        body = json.dumps({"error": self.code, "detail": self.detail, "hint": self.hint}).encode()
        lines = {
            "Content-Type": "application/json",
            "Content-Length": str(len(body)),
            "Connection": "close",
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            **self.headers,
        }
        head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
        return f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n{head}\r\n".encode() + body


class _RefusedRequest(Exception):
    """Stops the parsing of a refused request."""


_NOT_HTTP = _Refusal(400, "bad_request", "This is not a valid HTTP/1.1 request.")
_LONG_TARGET = _Refusal(
    414, "target_too_long", f"The request target has more than {TARGET:,} bytes.", "Send what is long in the body."
)
_LONG_HEAD = _Refusal(431, "headers_too_large", f"The headers of the request have more than {HEAD:,} bytes.")
_TOO_MANY_HEADERS = _Refusal(431, "headers_too_large", f"The request has more than {HEADERS} headers.")
_HOSTS = _Refusal(400, "bad_request", "Host: must be sent, and once.")
_TARGET = _Refusal(400, "bad_request", "The request target must be a path, or name the same host as Host.")


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `bounded_protocol` creates the class that a server takes."""

    bounds: Bounds

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._part: _Part | None = "start"
        self._messages = 0
        self._unparsed = 0
        self._piece = 0
        self._body = 0
        self._expected: tuple[int, _Part | None] = (0, None)
        self._since = 0.0
        self._unread: tuple[float, int] | None = None
        self._refusal: _Refusal | None = None
        self._over = False
        self._dropped = 0
        self._answering: RequestResponseCycle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Refuses the connection if there are too many."""
        super().connection_made(transport)  # type: ignore[arg-type]
        if len(self.connections) > self.bounds.connections:
            self._refuse(
                _Refusal(
                    503,
                    "too_many_connections",
                    f"{self.bounds.connections:,} connections are open, which is all that may be (limits.connections).",
                    "Try again later.",
                    {"Retry-After": "5"},
                )
            )

    def connection_lost(self, exc: Exception | None) -> None:
        """Notifies the request that is being answered."""
        super().connection_lost(exc)
        # uvicorn notifies only the last of pipelined requests; an event stream before it would never end.
        _disconnect(self._answering)

    def data_received(self, data: bytes) -> None:
        """Handles data from the client."""
        if self._over:
            self._dropped += len(data)
            if self._dropped > _LINGER_BYTES:
                self.transport.abort()
            return
        self._unset_keepalive_if_required()
        if self._part is None:
            self._part, self._unparsed = "start", 0
        self._piece = len(data)
        alone, before, body = self._part == "start", self._messages, self._body
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            log.debug("a protocol upgrade was requested and ignored")
        except httptools.HttpParserError:
            self._refuse(self._refusal or _NOT_HTTP)
            return
        if self._part is not None:
            # If data came together with an older request, or with part of the body, it is unknown how much of it
            # belongs to the head or to the trailers. The parser reports both only when they are complete.
            has_progress = self._body != body if self._part == "body" else self._messages - before > alone
            self._unparsed = 0 if has_progress else self._unparsed + len(data)
            if self._unparsed > HEAD:
                in_target = self._part == "head" and not self.headers and len(self.url) > TARGET
                self._refuse(_LONG_TARGET if in_target else _LONG_HEAD)

    def on_message_begin(self) -> None:
        """Starts to count."""
        super().on_message_begin()
        self._messages += 1
        self._part = "head"

    def on_header(self, name: bytes, value: bytes) -> None:
        """Adds one header. The blanks around its value are not part of it (RFC 9110, section 5.5)."""
        super().on_header(name, value.strip(b" \t"))

    def on_headers_complete(self) -> None:
        """Checks the head and passes the request to the application."""
        if len(self.url) > TARGET:
            self._stop(_LONG_TARGET)
        if len(self.headers) > HEADERS:
            self._stop(_TOO_MANY_HEADERS)
        # Counting is needed only if a large piece came in.
        if self._unparsed + self._piece > HEAD and self._length() > HEAD:
            self._stop(_LONG_HEAD)
        hosts = [value for name, value in self.headers if name == b"host"]
        if len(hosts) > 1 or (not hosts and self.parser.get_http_version() == "1.1"):
            self._stop(_HOSTS)
        if not self.url.startswith(b"/") and not _names_host(self.url, hosts):
            self._stop(_TARGET)
        if len(self.pipeline) >= _PIPELINED:
            self._stop(_NOT_HTTP)
        super().on_headers_complete()
        self._part, self._body, self._unparsed = "body", 0, 0
        self.headers = []  # the application has these; what follows the body is not a header

    def on_body(self, body: bytes) -> None:
        """Handles a piece of the body."""
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Expects nothing more."""
        super().on_message_complete()
        self._part, self._unparsed = None, 0

    def check(self) -> None:
        """Ends the connection if its client is too slow. The server calls this several times a second."""
        now = self.loop.time()
        self._check_writing(now)
        before, self._expected = self._expected, (self._messages, self._part)
        # While a request is answered, we may have paused reading ourselves.
        answering = self._part in ("start", "head") and self.cycle is not None and not self.cycle.response_complete
        if before != self._expected or answering:
            self._since = now
        elif not self.transport.is_closing():
            self._check_reading(now - self._since)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _check_reading(self, idle: float) -> None:
        seconds = self.bounds.header_timeout
        limit = self.bounds.body_timeout + self._body / _SLOWEST
        if self._part == "start" and idle >= seconds:
            self.transport.close()  # no request was begun
        elif self._part == "head" and idle >= seconds:
            detail = f"The headers did not come within {seconds:g} seconds (http.header_timeout)."
            self._refuse(_Refusal(408, "request_timeout", detail))
        elif self._part == "body" and idle >= limit and not (self.pipeline or self.flow.read_paused):
            detail = f"The body did not come within {limit:.0f} seconds: http.body_timeout, and one for each"
            self._refuse(_Refusal(408, "request_timeout", f"{detail} {_SLOWEST:,} bytes of it."))
        elif self._part == "end" and idle >= _LINGER_SECONDS:
            self.transport.abort()

    def _check_writing(self, now: float) -> None:
        """Aborts if the client reads too slowly. It is watched while the transport is full, and while it closes."""
        if not (self.flow.write_paused or self.transport.is_closing()):
            self._unread = None
            return
        unread = self.transport.get_write_buffer_size()
        since, before = self._unread or (now, unread)
        if now < since + self.bounds.write_timeout:
            self._unread = since, before
        elif before - unread >= _SLOWEST * self.bounds.write_timeout:
            self._unread = now, unread
        else:
            log.debug("a client did not read its response for %g seconds", self.bounds.write_timeout)
            self.transport.abort()

    def _length(self) -> int:
        return len(self.url) + sum(len(name) + len(value) + 4 for name, value in self.headers)

    def _stop(self, refusal: _Refusal) -> None:
        self._refusal = refusal
        raise _RefusedRequest

    def _refuse(self, refusal: _Refusal) -> None:
        """Answers in place of the application and closes, after pending answers to earlier requests."""
        self._over = True
        self._part = None
        self._unset_keepalive_if_required()
        cycle = self.cycle
        log.debug("refused: %s", refusal.detail)
        if cycle is not None and not cycle.response_complete and not cycle.more_body:
            cycle.keep_alive = False  # a client that sent more sees the connection end after this answer
            return
        if cycle is not None and cycle.more_body:
            # The body of this request is the wrong one.
            if cycle.response_started or self.pipeline:
                self.transport.close()
                return
            _disconnect(cycle)
        self.flow.resume_reading()
        self.transport.write(refusal.to_http())
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._part = "end"


def bounded_protocol(bounds: Bounds) -> type[BoundedProtocol]:
    """Creates a subclass of uvicorn's HTTP protocol that enforces these limits."""
    return type("BoundedProtocol", (BoundedProtocol,), {"bounds": bounds})


def _names_host(target: bytes, hosts: list[bytes]) -> bool:
    """Returns True if a target in absolute form, which takes precedence over Host, names the same host."""
    scheme, _, rest = target.partition(b"://")
    authority = rest.partition(b"/")[0].partition(b"?")[0]
    return scheme.lower() in (b"http", b"https") and [authority.lower()] == [host.lower() for host in hosts]


def _disconnect(cycle: RequestResponseCycle | None) -> None:
    if cycle is not None and not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()

"""What stands before every door, REST and MCP alike: hosts, origins, the API key, the size of requests, failures."""

from __future__ import annotations

import asyncio
import hmac
import logging
import re
from dataclasses import dataclass, field
from urllib.parse import unquote_plus
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.config import Settings
from app.rest import docs, origins
from app.rest.errors import problem
from app.rest.hardening import hardened
from app.rest.origins import Origins

log = logging.getLogger(__name__)

_OPEN = origins.PROBES | docs.FILES | {"/"}
_SESSION_POSTS = frozenset({"/mcp/messages", "/mcp/messages/"})
"""Old MCP clients send their key only when they connect. The id of the session they are then given, which nobody can
guess and which ends with their stream, stands for it."""

_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_HEADERS = frozenset(
    {
        b"authorization", b"x-api-key", b"content-length", b"content-encoding", b"transfer-encoding", b"x-request-id",
        b"expect", *origins.HEADERS,
    }
)  # fmt: skip


_DRAINED_BYTES, _DRAINED_SECONDS = 64 * 1024 * 1024, 5
"""How much of a body over the limit is read and dropped: most clients look for an answer only when all is sent, and
would see a broken connection instead of the reason."""


class _TooLong(Exception):
    """The body went over the limit while it was read."""


@dataclass(slots=True)
class _Exchange:
    """One request on its way through: what was read of it, and how far the answer is."""

    path: str
    headers: dict[bytes, bytes]
    query_key: bytes | None
    added: list[tuple[bytes, bytes]] = field(default_factory=list)
    shared: bool = False
    started: bool = False
    too_long: bool = False
    draining: bool = False
    read: bool = False


class Guard:
    """Pure ASGI middleware: reads the headers once, then passes every message on unbuffered.

    In this order: where the request comes from, the API key, the encoding and the size of the body. Whatever fails
    unexpectedly behind it is logged under the request's id and answered with that id alone.
    """

    def __init__(self, app: ASGIApp, settings: Settings) -> None:
        self._app = app
        self._limit = settings.limits.body
        self._key = settings.access.api_key.get_secret_value().encode()
        self._origins = Origins(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        exchange = _Exchange(
            scope["path"], {name: value for name, value in scope["headers"] if name in _HEADERS}, _take_key(scope)
        )
        request_id = exchange.headers.get(b"x-request-id", b"")
        if not _SANE_ID.fullmatch(request_id):
            request_id = uuid4().hex.encode()
        exchange.added.append((b"x-request-id", request_id))
        exchange.shared = self._origins.known(exchange.headers)
        exchange.added += self._origins.cors(exchange.headers, exchange.shared)
        refusal = self._origins.refusal(scope, exchange.headers, exchange.shared) or self._no_key(exchange, scope)
        answer = _answering(exchange, send)
        if refusal is None and (refusal := _encoded(exchange) or self._too_large(exchange)) is not None:
            await _drain(exchange, receive)
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        if b"content-length" not in exchange.headers or b"transfer-encoding" in exchange.headers:
            receive = self._counting(exchange, receive)
        await self._pass_on(exchange, scope, receive, answer)

    async def _pass_on(self, exchange: _Exchange, scope: Scope, receive: Receive, answer: Send) -> None:
        try:
            await self._app(scope, receive, answer)
        except ClientDisconnect:
            return
        except Exception as error:
            if not exchange.too_long:
                request_id = exchange.added[0][1].decode()
                log.exception("request %s failed: %s %s", request_id, scope["method"], exchange.path)
                if exchange.started:
                    raise
                failure = problem(500, "internal_error", f"The request failed; the log tells why under {request_id}.")
                await failure(scope, receive, answer)
                return
            if not isinstance(error, _TooLong):
                log.debug("what a request over the limit led to", exc_info=error)
        if exchange.too_long and not exchange.started:
            exchange.too_long = False
            await _drain(exchange, receive)
            await _over_limit(f"is longer than {self._limit:,} bytes", self._limit)(scope, receive, answer)

    def _no_key(self, exchange: _Exchange, scope: Scope) -> Response | None:
        if not self._key or exchange.path in _OPEN:
            return None
        if exchange.path in _SESSION_POSTS and b"session_id=" in scope["query_string"]:
            return None
        given = _given_keys(exchange)
        if any(hmac.compare_digest(key, self._key) for key in given):
            return None
        return problem(
            401,
            "unauthenticated",
            "The API key is wrong." if given else "An API key is needed.",
            "Send it as `Authorization: Bearer KEY` or `X-API-Key: KEY`; MCP clients may append ?key=KEY to the URL.",
            {"WWW-Authenticate": 'Bearer realm="openmemory"' + (', error="invalid_token"' if given else "")},
        )

    def _too_large(self, exchange: _Exchange) -> Response | None:
        length = exchange.headers.get(b"content-length")
        if length is None:
            return None
        if not length.isdigit() or len(length) > 19:
            return problem(400, "bad_request", "Content-Length: must be a number of bytes")
        return _over_limit(f"has {int(length):,} bytes", self._limit) if int(length) > self._limit else None

    def _counting(self, exchange: _Exchange, receive: Receive) -> Receive:
        """Receives like `receive`, until the body goes over the limit."""
        left = self._limit

        async def counted() -> Message:
            nonlocal left
            message = await receive()
            if message["type"] == "http.request":
                left -= len(message.get("body", b""))
                exchange.read = not message.get("more_body", False)
                if left < 0 and not exchange.draining:
                    exchange.too_long = True
                    raise _TooLong
            return message

        return counted


def _answering(exchange: _Exchange, send: Send) -> Send:
    """Sends like `send`, with our headers; nothing, once the request turned out to be too long."""

    async def answer(message: Message) -> None:
        if exchange.too_long and not exchange.started:
            return
        if message["type"] == "http.response.start":
            exchange.started = True
            message["headers"] = hardened(message.get("headers", ()), exchange.added, exchange.shared)
        await send(message)

    return answer


async def _drain(exchange: _Exchange, receive: Receive) -> None:
    if exchange.read or b"expect" in exchange.headers:
        return  # all was sent, or the client waits to be told before it sends
    exchange.draining = True
    left = _DRAINED_BYTES
    try:
        async with asyncio.timeout(_DRAINED_SECONDS):
            while left > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                left -= len(message.get("body", b""))
    except TimeoutError:
        return


def _encoded(exchange: _Exchange) -> Response | None:
    """Refuses a compressed body: a few KB of it could become any number of GB."""
    if b"content-encoding" not in exchange.headers:
        return None
    encoding = exchange.headers[b"content-encoding"].strip().lower()
    if encoding in (b"", b"identity"):
        return None
    return problem(
        415,
        "unsupported_media_type",
        f"Content-Encoding: must be left out, not {encoding.decode('latin-1')[:80]!r}",
        "Send the body uncompressed.",
        {"Accept-Encoding": "identity", "Connection": "close"},
    )


def _over_limit(what: str, limit: int) -> Response:
    # What is left of the body is not read, so the connection is of no further use.
    detail = f"body: {what}; the limit is {limit:,} (limits.body)"
    return problem(413, "too_large", detail, headers={"Connection": "close"})


def _given_keys(exchange: _Exchange) -> list[bytes]:
    keys = [exchange.headers.get(b"x-api-key"), exchange.query_key]
    scheme, _, credential = exchange.headers.get(b"authorization", b"").partition(b" ")
    if scheme.lower() == b"bearer":
        keys.append(credential.strip())
    return [key for key in keys if key]


def _take_key(scope: Scope) -> bytes | None:
    """Take `key` out of the query string, so that no log of the request can hold it."""
    query: bytes = scope["query_string"]
    if b"key=" not in query:
        return None
    pairs = query.split(b"&")
    found = [pair for pair in pairs if pair.startswith(b"key=")]
    scope["query_string"] = b"&".join(pair for pair in pairs if not pair.startswith(b"key="))
    return unquote_plus(found[-1][4:].decode("latin-1")).encode() if found else None

"""Middleware in front of every REST and MCP endpoint: hosts, origins, the API key, the size of requests, failures."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass, field, replace
from urllib.parse import quote
from uuid import uuid4

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmemory.access.authentication import Authenticator, PresentedCredentials
from openmemory.access.rate_limits import RateLimiter
from openmemory.config.settings import Settings
from openmemory.doors.rest.http import credentials, docs, origins, proxies, upload, zones
from openmemory.doors.rest.http.challenge import WELL_KNOWN, www_authenticate
from openmemory.doors.rest.http.credentials import RequestCredentials
from openmemory.doors.rest.http.errors import error_response, problem
from openmemory.doors.rest.http.hardening import harden
from openmemory.doors.rest.http.origins import Origins
from openmemory.errors import OpenMemoryError, Unauthenticated
from openmemory.identity.principal import Door
from openmemory.identity.request import RequestContext, bind
from openmemory.serialization.json_limits import more_than
from openmemory.telemetry.traffic import UNMATCHED

log = logging.getLogger(__name__)

_OPEN = docs.FILES | credentials.FORMS | credentials.OAUTH | {origins.LIVE, "/"}
_OPEN_BELOW = (WELL_KNOWN, "/ui/static/")
"""Paths without data of users. They need no credential."""
_SESSION_POST = re.compile("/mcp/(messages|[^/]*/sse/[^/]*/messages)/?")
"""Old MCP clients send their key only when they connect. After that the session id stands for the key: nobody can guess
it, and it ends with their stream. The endpoint that knows the session decides."""

_WITHOUT_POSTGRES = frozenset({"/metrics", "/health", origins.READY, "/api/v1/doctor"})
"""Paths that report an outage while it lasts and reveal nothing of anybody's memories."""

_MAX_ADDRESS_LENGTH = 64

_TYPE_IT = "Type the address yourself."

_SANE_ID = re.compile(rb"[A-Za-z0-9._:-]{1,128}")
_HEADERS = frozenset(
    {
        b"content-length", b"content-encoding", b"content-type", b"transfer-encoding", b"x-request-id", b"expect",
        zones.SENT,
        *origins.HEADERS, *credentials.HEADERS,
    }
)  # fmt: skip


_DRAINED_BYTES, _DRAINED_SECONDS = 64 * 1024 * 1024, 5
"""The bytes and seconds for which a body over the limit is read and dropped. Most clients read the answer only after
they have sent everything; otherwise they would see a broken connection instead of the reason."""


@dataclass(frozen=True, slots=True)
class _Bound:
    """The size limit of a body, the setting it comes from, and the limit on JSON values. `values` is None if the body
    holds no JSON and is read as a stream."""

    bytes: int
    setting: str
    values: int | None


class _TooLong(Exception):
    """Raised when the body exceeds a limit while it is read."""


@dataclass(slots=True)
class _RequestState:
    """The state of one request: what was read of it, and how far the response is."""

    path: str
    headers: dict[bytes, bytes] = field(repr=False)
    credentials: RequestCredentials
    address: str | None
    extra_headers: list[tuple[bytes, bytes]] = field(default_factory=list)
    shared: bool = False
    started: bool = False
    too_long: str | None = None
    draining: bool = False
    read: bool = False


class Guard:
    """Pure ASGI middleware that reads the headers once and passes every message on unbuffered.

    It checks, in this order: where the request comes from, the API key, the encoding and the size of the body. An
    unexpected failure behind it is logged under the request's id, and the response contains only that id.
    """

    def __init__(self, app: ASGIApp, settings: Settings, authenticator: Authenticator, rates: RateLimiter) -> None:
        self._app = app
        self._settings = settings
        limits = settings.limits
        self._bound = _Bound(limits.body, "limits.body", limits.json_values)
        self._archives = _Bound(limits.backup + upload.OVERHEAD, "limits.backup", None)
        self._documents = _Bound(limits.document + upload.OVERHEAD, "limits.document", None)
        self._authenticator = authenticator
        self._rates = rates
        self._origins = Origins(settings)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let one request through, or refuse it."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers = {name: value for name, value in scope["headers"] if name in _HEADERS}
        request_credentials = credentials.take(scope, headers)
        if scope["path"].startswith("//"):
            # A client that was given a base address with a slash at its end, and appended a path to it.
            scope["path"] = "/" + scope["path"].lstrip("/")
            scope["raw_path"] = b"/" + (scope.get("raw_path") or quote(scope["path"]).encode()).lstrip(b"/")
        exchange = _RequestState(
            scope["path"],
            headers,
            request_credentials,
            scope["client"][0][:_MAX_ADDRESS_LENGTH] if scope.get("client") else None,
        )
        request_id = exchange.headers.get(b"x-request-id", b"")
        if not _SANE_ID.fullmatch(request_id):
            request_id = uuid4().hex.encode()
        exchange.extra_headers.append((b"x-request-id", request_id))
        exchange.shared = self._origins.may_call(exchange.headers)
        exchange.extra_headers += self._origins.cors(exchange.headers, exchange.shared)
        refusal = self._origins.refusal(scope, exchange.headers, exchange.shared)
        answer = _answering(exchange, send)
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        await self._answer_errors(exchange, scope, receive, answer)

    async def _answer_errors(self, exchange: _RequestState, scope: Scope, receive: Receive, answer: Send) -> None:
        try:
            await self._admit(exchange, scope, receive, answer)
        except ClientDisconnect:
            return
        except Exception as error:
            if exchange.too_long is None:
                request_id = exchange.extra_headers[0][1].decode()
                # Log the route, because the address may hold a key in the wrong place.
                route = getattr(scope.get("route"), "path", UNMATCHED)
                log.exception("request %s failed: %s %s", request_id, scope["method"], route)
                if exchange.started:
                    raise
                failure = problem(500, "internal_error", f"The request failed; the log says why under {request_id}.")
                await failure(scope, receive, answer)
                return
            if not isinstance(error, _TooLong):
                log.debug("what a request over the limit led to", exc_info=error)
        if exchange.too_long is not None and not exchange.started:
            detail, exchange.too_long = exchange.too_long, None
            await _drain(exchange, receive)
            await _over_limit(detail)(scope, receive, answer)

    async def _admit(self, exchange: _RequestState, scope: Scope, receive: Receive, answer: Send) -> None:
        refusal = self._foreign_form(exchange, scope) or await self._unknown(exchange, scope)
        bound = self._bound_of(exchange, scope)
        if refusal is None and (refusal := _refuse_encoding(exchange) or _too_large(exchange, bound)) is not None:
            await _drain(exchange, receive)
        if refusal is not None:
            await refusal(scope, receive, answer)
            return
        length = exchange.headers.get(b"content-length")
        few = length is not None and b"transfer-encoding" not in exchange.headers
        if not few or bound.values is None or int(length or 0) > bound.values:
            receive = _counting(exchange, receive, bound)
        await self._app(scope, receive, answer)

    def _foreign_form(self, exchange: _RequestState, scope: Scope) -> Response | None:
        """Refuses another site's form that would sign people in with its own key and collect their memories."""
        is_form = exchange.path in credentials.FORMS and scope["method"] == "POST"
        if not is_form or self._origins.vouched(scope, exchange.headers):
            return None
        return problem(403, "origin_not_allowed", "Origin: another site's form cannot sign you in or out", _TYPE_IT)

    async def _unknown(self, exchange: _RequestState, scope: Scope) -> Response | None:
        """Stores the sender on the request, or returns the response that refuses it."""
        path = exchange.path
        if path in credentials.SIGN_OUT and scope["method"] in ("GET", "POST"):
            if exchange.credentials.cookie is not None:
                await self._authenticator.sessions.close(exchange.credentials.cookie)
            return credentials.signed_out(scope)
        # If a credential is required anyway, forwarding makes no difference.
        forwarded = not self._authenticator.required and proxies.passed_on(scope["headers"])
        is_open = path in _OPEN or path.startswith(_OPEN_BELOW)
        key = exchange.credentials.explicit
        if path == origins.READY and not key:
            # A probe without a credential belongs to nobody and gets no more than it needs.
            is_open = self._authenticator.required or forwarded or not self._origins.accepts_host(exchange.headers)
        cookie = exchange.credentials.cookie if not key and (self._authenticator.required or forwarded) else None
        if cookie is not None and not is_open:
            if not self._origins.vouched(scope, exchange.headers):
                return problem(
                    403,
                    "origin_not_allowed",
                    "Cookie: accepted only from pages of this service and of the origins in http.cors_origins",
                    "Send the key as `Authorization: Bearer KEY`, or add the origin of the page to http.cors_origins.",
                )
            key = (cookie,)
        proof = PresentedCredentials(
            key,
            exchange.address,
            exchange.extra_headers[0][1].decode(),
            forwarded=forwarded,
            outage=path.rstrip("/") in _WITHOUT_POSTGRES,
            session=bool(key) and not exchange.credentials.explicit,
        )
        if path == "/" and exchange.credentials.address and self._signs_in(scope, exchange):
            return await self._sign_in(exchange, scope, proof)
        if is_open:
            bind(scope, RequestContext(None, exchange.address, proof.request))
            return None
        principal = None
        try:
            if proof.credentials or not _is_session_post(scope):
                principal = await self._authenticator.principal(proof)
            if principal is not None and principal.metered:
                await self._rates.request(principal.id)
            zone = zones.requested_zone(scope, exchange.headers)
        except OpenMemoryError as error:
            answer = self._refuse(error, path)
            if cookie is not None and isinstance(error, Unauthenticated):
                credentials.without_cookie(scope, answer)
            return answer
        door = Door.MCP if path.startswith("/mcp") else Door.REST
        if principal is not None:
            principal = replace(principal, door=door, address=exchange.address, request=proof.request, timezone=zone)
        repeated = principal is not None and bool(exchange.credentials.headers or cookie)
        bind(scope, RequestContext(principal, exchange.address, proof.request, repeated, zone))
        return None

    def _signs_in(self, scope: Scope, exchange: _RequestState) -> bool:
        """Returns True if a browser opens an address with a key, or if a person submitted our own sign-in page."""
        method = scope["method"]
        return method == "GET" or (method == "POST" and self._origins.vouched(scope, exchange.headers))

    async def _sign_in(self, exchange: _RequestState, scope: Scope, proof: PresentedCredentials) -> Response:
        """Gives a browser the key of its address as a cookie, if the key is valid."""
        if not self._origins.vouched(scope, exchange.headers):
            # Otherwise another site's link could sign people in with its own key and collect their memories.
            return problem(403, "origin_not_allowed", "key: another site's link cannot sign you in", _TYPE_IT)
        try:
            principal = await self._authenticator.principal(proof)
            if not origins.states_origin(exchange.headers):
                return credentials.sign_in_page(proof.credentials[0])
            answer = credentials.signed_in(scope)
            await credentials.remember(scope, answer, proof.credentials[0], principal, self._authenticator.sessions)
        except OpenMemoryError as error:
            return self._refuse(error, exchange.path)
        return answer

    def _refuse(self, error: OpenMemoryError, path: str) -> Response:
        answer = error_response(error)
        if isinstance(error, Unauthenticated):
            wrong = None if error.code == Unauthenticated.code else "invalid_token"
            words = None if wrong is None else error.message
            answer.headers["WWW-Authenticate"] = www_authenticate(
                self._settings, error=wrong, scope="read write", path=path, description=words
            )
        return answer

    def _bound_of(self, exchange: _RequestState, scope: Scope) -> _Bound:
        """Returns the limits of a request, based on its headers alone. Only forms with files may be large."""
        content_type = exchange.headers.get(b"content-type", b"").decode("latin-1")
        if scope["method"] != "POST" or not upload.is_multipart(content_type):
            return self._bound
        path = exchange.path.removesuffix("/")
        large = self._documents if path == upload.DOCUMENTS else self._archives
        return large if path == upload.DOCUMENTS or path in upload.ARCHIVES else self._bound


def _too_large(exchange: _RequestState, bound: _Bound) -> Response | None:
    length = exchange.headers.get(b"content-length")
    if length is None:
        return None
    if not length.isdigit() or len(length) > 19:
        return problem(400, "bad_request", "Content-Length: must be a number of bytes")
    if int(length) <= bound.bytes:
        return None
    return _over_limit(f"body: has {int(length):,} bytes; the limit is {bound.bytes:,} ({bound.setting})")


def _counting(exchange: _RequestState, receive: Receive, bound: _Bound) -> Receive:
    """Wraps `receive` and raises when the body exceeds its limit on bytes or, at its end, on JSON values."""
    remaining = bound.bytes
    chunks: list[bytes] = []

    async def counting_receive() -> Message:
        nonlocal remaining
        message = await receive()
        if message["type"] != "http.request" or exchange.draining:
            return message
        body = message.get("body", b"")
        remaining -= len(body)
        exchange.read = not message.get("more_body", False)
        if bound.values is not None:
            chunks.append(body)
        if remaining < 0:
            exchange.too_long = (
                f"body: is longer than {bound.bytes:,} bytes; the limit is {bound.bytes:,} ({bound.setting})"
            )
        elif exchange.read and bound.values is not None and more_than(bound.values, b"".join(chunks)):
            exchange.too_long = f"body: has more than {bound.values:,} JSON values (limits.json_values)"
        if exchange.read or exchange.too_long is not None:
            chunks.clear()
        if exchange.too_long is not None:
            raise _TooLong
        return message

    return counting_receive


def _answering(exchange: _RequestState, send: Send) -> Send:
    """Wraps `send` and adds our headers. Sends nothing once the request has turned out to be too long."""

    async def answer(message: Message) -> None:
        if exchange.too_long is not None and not exchange.started:
            return
        if message["type"] == "http.response.start":
            exchange.started = True
            message["headers"] = harden(message.get("headers", ()), exchange.extra_headers, exchange.shared)
        await send(message)

    return answer


async def _drain(exchange: _RequestState, receive: Receive) -> None:
    if exchange.read or b"expect" in exchange.headers:
        return  # everything was sent, or the client waits for permission to send
    exchange.draining = True
    remaining = _DRAINED_BYTES
    try:
        async with asyncio.timeout(_DRAINED_SECONDS):
            while remaining > 0:
                message = await receive()
                if message["type"] != "http.request" or not message.get("more_body", False):
                    return
                remaining -= len(message.get("body", b""))
    except TimeoutError:
        return


def _refuse_encoding(exchange: _RequestState) -> Response | None:
    """Rejects a compressed body: a few KB of it could expand to any number of GB."""
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


def _over_limit(detail: str) -> Response:
    # The rest of the body is not read, so the connection cannot be reused.
    return problem(413, "too_large", detail, headers={"Connection": "close"})


def _is_session_post(scope: Scope) -> bool:
    """Returns True if a message may belong to a session that stands for its credential. The path is read before
    decoding, as the endpoints do, because a percent-encoded slash in a name is not part of the path."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    path = raw.decode("latin-1")
    return scope["method"] == "POST" and b"session_id=" in scope["query_string"] and bool(_SESSION_POST.fullmatch(path))

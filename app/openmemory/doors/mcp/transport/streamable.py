"""Streamable HTTP: every POST is answered on its own, by whichever process it reaches."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types import PROTOCOL_VERSION_META_KEY, UNSUPPORTED_PROTOCOL_VERSION
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json, to_json
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from openmemory.access.rate_limits import RateLimiter
from openmemory.config.settings import LimitSettings
from openmemory.doors.mcp import progress
from openmemory.doors.mcp.client_names import repeating_name
from openmemory.doors.mcp.http_errors import error_response
from openmemory.doors.mcp.identity import identity_of
from openmemory.doors.mcp.transport import envelope
from openmemory.errors import TooMany
from openmemory.identity.request import principal_of
from openmemory.serialization.surrogates import replace_in_body

BATCHING = "2025-03-26"
"""The only revision of the protocol that has batches, and the default for a request that names none."""

MAX_MESSAGES = 100
"""The maximum number of messages in a batch."""

_HEADER = b"mcp-protocol-version"
_ENVELOPE = PROTOCOL_VERSION_META_KEY.encode()
_ARRAY = re.compile(rb"\s*\[")
_NOT_FOR_US = frozenset({406, 415})
"""Statuses that refuse the way in which a request is sent, whatever its message."""


class Streamable:
    """Answers POSTs without a session: each carries all it needs."""

    def __init__(self, server: Server[Any], limits: LimitSettings, rates: RateLimiter) -> None:
        self._limits = limits
        self._rates = rates
        self._json, self._events = (
            StreamableHTTPSessionManager(server, json_response=json, stateless=True, max_request_body_size=limits.body)
            for json in (True, False)
        )

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Answers requests while the block runs."""
        async with self._json.run(), self._events.run():
            yield

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request whose identity is known."""
        if scope["method"] != "POST":
            await self._json.handle_request(scope, receive, send)
            return
        body = await replace_in_body(await Request(scope, receive).body())
        version = next((value.decode("latin-1") for name, value in scope["headers"] if name == _HEADER), BATCHING)
        if version not in KNOWN_PROTOCOL_VERSIONS:
            await _not_served(version, body)(scope, receive, send)
        elif version == BATCHING and _ARRAY.match(body):
            await (await self._batch(scope, receive, body))(scope, receive, send)
        elif (refusal := envelope.malformed(body)) is not None:
            await refusal(scope, receive, send)
        else:
            door = self._events if progress.reports_progress(scope, body) else self._json
            if identity_of(Request(scope)).app is None:
                send = repeating_name(body, self._limits, send)
            await door.handle_request(scope, envelope.again(body, receive), send)

    async def _batch(self, scope: Scope, receive: Receive, body: bytes) -> Response:
        """Returns the answers to the requests of a batch in one array; 202 without a body if it has no requests."""
        messages = _messages(body)
        if isinstance(messages, Response):
            return messages
        principal = principal_of(scope)
        try:
            if principal.metered and len(messages) > 1:
                await self._rates.request(principal.id, len(messages) - 1)  # the guard has counted one
        except TooMany as error:
            return error_response(429, error)
        answers = []
        for message in messages:
            if (problem := envelope.problem(message) or _unfit(message)) is not None:
                answers.append(bytes(envelope.invalid(problem, message).body))
                continue
            status, answer = await _collect_response(self._json, scope, envelope.again(to_json(message), receive))
            if status in _NOT_FOR_US:
                return Response(answer, status, media_type="application/json")
            if answer:
                answers.append(answer)
        array = b"[" + b",".join(answers) + b"]"
        return Response(array, media_type="application/json") if answers else Response(status_code=202)


def _messages(body: bytes) -> list[Any] | Response:
    """Returns the messages of a batch, or the response that refuses it."""
    try:
        messages: list[Any] = from_json(body, allow_inf_nan=False)
    except ValueError as error:
        return envelope.not_json(error)
    if not messages:
        return envelope.invalid("the batch is empty")
    if len(messages) > MAX_MESSAGES:
        return envelope.invalid(f"the batch has {len(messages):,} messages; the limit is {MAX_MESSAGES}")
    return messages


def _unfit(message: dict[str, Any]) -> str | None:
    """Returns the reason why a message may not be part of a batch; None if it may."""
    return "initialize must be sent alone" if message.get("method") == "initialize" else None


def _not_served(version: str, body: bytes) -> Response:
    # A message without a handshake must not be offered revisions that begin with one: it could not use them.
    served = list(MODERN_PROTOCOL_VERSIONS if _ENVELOPE in body else KNOWN_PROTOCOL_VERSIONS)
    version = version[:100]
    words = f"MCP-Protocol-Version: {version!r} is not served; use one of {', '.join(served)}"
    data = {"requested": version, "supported": served}
    return envelope.error(UNSUPPORTED_PROTOCOL_VERSION, words, envelope.id_of(body), data)


async def _collect_response(door: StreamableHTTPSessionManager, scope: Scope, receive: Receive) -> tuple[int, bytes]:
    """Returns the status and the body of an answer."""
    status, body = 500, b""

    async def send(message: Message) -> None:
        nonlocal status, body
        if message["type"] == "http.response.start":
            status = message["status"]
        else:
            body += message.get("body", b"")

    await door.handle_request(scope, receive, send)
    return status, body

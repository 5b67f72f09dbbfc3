"""The HTTP side of the relay: takes a POST that reached the wrong process and replays it at the right one."""

from __future__ import annotations

import asyncio
import logging
from uuid import UUID

import anyio
from mcp.server.transport_security import RequestBodyLimitMiddleware, TransportSecurityMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmemory.config.settings import LimitSettings
from openmemory.doors.mcp.backlog import too_many
from openmemory.doors.mcp.http_errors import error_response, no_session
from openmemory.doors.mcp.identity import names_of
from openmemory.doors.mcp.transport.envelope import malformed
from openmemory.errors import Invalid, Unavailable
from openmemory.identity.request import request_context_of
from openmemory.serialization.surrogates import replace_in_body
from openmemory.sessions.relay import Relay
from openmemory.sessions.storage import MessageSender

log = logging.getLogger(__name__)

_delivering: set[asyncio.Task[None]] = set()


class Forwarding:
    """Answers POSTs for sessions of other processes as the process that holds them would."""

    def __init__(self, relay: Relay, limits: LimitSettings) -> None:
        self.relay = relay
        self._limits = limits
        self._security = TransportSecurityMiddleware()
        self._limited = RequestBodyLimitMiddleware(self._forward, limits.body)

    async def post(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one POST. Checks in the SDK's order: headers, session id, size, text."""
        request = Request(scope)
        refusal = await self._security.validate_request(request, is_post=True)
        if refusal is None and "session_id" not in request.query_params:
            refusal = Response("session_id is required", status_code=400)
        if refusal is None and _session(request) is None:
            refusal = no_session()
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        await self._limited(scope, receive, send)

    async def _forward(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        session = _session(request)
        assert session is not None
        answer = await self._unknown(request, session) or await self._answer(request, session)
        await answer(scope, receive, send)

    async def _unknown(self, request: Request, session: UUID) -> Response | None:
        """Refuses a sender without a credential and a session before megabytes of its body are read and parsed."""
        try:
            exists = request_context_of(request.scope).principal is not None or await self.relay.stands(session)
        except Unavailable as error:
            return error_response(503, error)
        return None if exists else no_session()

    async def _answer(self, request: Request, session: UUID) -> Response:
        try:
            names = names_of(request, self._limits) if "user" in request.path_params else None
        except Invalid:
            return no_session()
        principal = request_context_of(request.scope).principal
        body = await replace_in_body(await request.body())
        if (refusal := malformed(body)) is not None:
            return refusal
        try:
            status = await self.relay.forward(
                session, MessageSender(names, None if principal is None else principal.id), body
            )
        except Unavailable as error:
            return error_response(503, error)
        if status == 404:
            return no_session()
        if status == 429:
            return too_many(self._limits.session_messages)
        return Response("Accepted" if status == 202 else "The session refused the message", status_code=status)


def _session(request: Request) -> UUID | None:
    try:
        return UUID(hex=request.query_params["session_id"])
    except ValueError:
        return None


def message_scope(path: str, session: UUID, body: bytes) -> Scope:
    """Returns the request of a message, with the parts that sessions read."""
    return {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "root_path": "",
        "query_string": b"session_id=" + session.hex.encode(),
        "headers": [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())],
        "client": None,
        "server": None,
        "path_params": {},
    }


async def status_of(app: ASGIApp, scope: Scope, body: bytes) -> int:
    """Sends a request to an application and returns the status of its answer as soon as there is one.

    The application continues in the background: a session takes a message when it has time for it.
    """
    status: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    unread = [body]

    async def receive() -> Message:
        return {"type": "http.request", "body": unread.pop() if unread else b"", "more_body": False}

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start" and not status.done():
            status.set_result(message["status"])

    async def run() -> None:
        try:
            await app(scope, receive, send)
            if not status.done():
                raise RuntimeError("there was no answer")
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            log.debug("a session ended before it took a message that it had accepted")
        except Exception as error:
            if status.done():
                log.exception("a session failed to take a message that it had accepted")
            else:
                status.set_exception(error)

    task = asyncio.create_task(run())
    _delivering.add(task)
    task.add_done_callback(_delivering.discard)
    return await status

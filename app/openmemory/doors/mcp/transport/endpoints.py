"""The HTTP endpoints of MCP: SSE and streamable HTTP, at OpenMemory's addresses and at plain ones."""

from __future__ import annotations

import asyncio
import logging
import re
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID

from anyio import CancelScope
from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from openmemory.access.authentication import Authenticator
from openmemory.config.settings import LimitSettings
from openmemory.doors.mcp.backlog import Answers, Backlog, attach, too_many
from openmemory.doors.mcp.http_errors import error_response, no_session, refuse
from openmemory.doors.mcp.identity import Identity, bind, identify, names_of, offer_of
from openmemory.doors.mcp.server import mcp_server
from openmemory.doors.mcp.toolsets import OTHER_SERVERS
from openmemory.doors.mcp.transport import envelope
from openmemory.doors.mcp.transport.forwarding import Forwarding, message_scope, status_of
from openmemory.doors.mcp.transport.streamable import Streamable
from openmemory.errors import Forbidden, Invalid, TooMany, Unavailable
from openmemory.identity.principal import LOCAL, Principal
from openmemory.identity.request import RequestContext, prefix_of, principal_of, request_context_of
from openmemory.services import Services
from openmemory.sessions.storage import SessionOwner
from openmemory.telemetry.traffic import Traffic

log = logging.getLogger(__name__)

MESSAGES = "/mcp/messages/"
MAX_SESSIONS = 10_000
"""The maximum number of open SSE sessions. Each holds a connection and a task; beyond the limit a client is asked to
come back."""

LOOKED_EVERY = 5.0
"""Seconds between two looks at the credentials of the open streams. A stream ends at the latest so long after its
credential."""

_NAMED = re.compile("/mcp/([^/]*)/(http|sse)/([^/]*)((?:/messages)?/?)")
_SESSION = re.compile(rb"session_id=([0-9a-f]{32})")


@dataclass(frozen=True, slots=True)
class _Session:
    """An open SSE session of this process."""

    identity: Identity
    owner: SessionOwner
    backlog: Backlog

    def admits(self, sender: RequestContext) -> bool:
        """Returns True if the sender may post here: with the same credential, or with none if the client sends none."""
        if sender.principal is None:
            return self.owner.bearer
        return sender.principal.id == self.owner.principal


@dataclass(frozen=True, slots=True, eq=False)
class _Stream:
    """An open event stream of this process: the principal that opened it, and what ends it."""

    principal: Principal
    scope: CancelScope


class McpDoors:
    """The MCP routes and the tasks that must run while they serve.

    Streamable HTTP keeps no session: each request carries all it needs, so any replica may answer it. An SSE session
    lives in the process that holds its stream; `session_id` leads its messages to the session and its identity.
    Messages that reach another process are forwarded, if there can be another process.
    """

    def __init__(self, services: Services, authenticator: Authenticator, traffic: Traffic) -> None:
        self._limits: LimitSettings = services.settings.limits
        self._settings = services.settings.mcp
        self._authenticator = authenticator
        self._denials = services.denials
        self._rates = services.rates
        self._server: Server[Any] = mcp_server(services, traffic)
        self._sse = SseServerTransport(MESSAGES, max_request_body_size=self._limits.body)
        self._sessions: dict[str, _Session] = {}
        self._open: Counter[str] = Counter()
        self._streams: set[_Stream] = set()
        relay = services.relay(self._deliver)
        self._forwarding = None if relay is None else Forwarding(relay, self._limits)
        self._http = Streamable(self._server, self._limits, services.rates)
        self.routes: list[BaseRoute] = [
            _Door("/mcp/{client}/http/{user}", self._streamable),
            _Door("/mcp", self._streamable),
            *(_Door(f"/mcp/{name}", self._streamable) for name in OTHER_SERVERS),
            *(_Door(f"/mcp/{name}/sse", self._open_sse) for name in OTHER_SERVERS),
            _Door("/mcp/messages", self._post_message),
            _Door("/mcp/sse", self._open_sse),
            _Door("/mcp/{client}/sse/{user}", self._open_sse),
            *_nameless("sse", self._open_sse),
            _Door("/mcp/{client}/sse/{user}/messages", self._post_message),
            *_nameless("http", self._streamable),
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Runs these tasks while the block runs."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._http.running())
            if self._forwarding is not None:
                await stack.enter_async_context(self._forwarding.relay.running())
            watching = asyncio.create_task(self._end_streams(), name="streams")
            try:
                yield
            finally:
                watching.cancel()
                await asyncio.wait([watching])

    async def _end_streams(self) -> None:
        """Ends the streams of this process whose credential was revoked, in whichever process, or has expired."""
        while True:
            await asyncio.sleep(LOOKED_EVERY)
            try:
                expired_principals = await self._authenticator.ended([stream.principal for stream in self._streams])
            except Unavailable as error:  # `database` logs this once
                log.debug("streams: not now: %s", error)
                continue
            for stream in self._streams:
                if stream.principal in expired_principals:
                    stream.scope.cancel()

    async def _streamable(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            # Every version of the protocol allows this. A stream would stay silent, because without sessions nothing is
            # sent unasked, and each client would hold a connection for it.
            await refuse(405, "MCP messages are sent here with POST", hint="For SSE: /mcp/sse.", allow="POST")(
                scope, receive, send
            )
            return
        identity = await self._identity(scope, receive, send)
        if identity is None:
            return
        bind(scope, identity)
        await self._http.answer(scope, receive, send)

    async def _open_sse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await refuse(405, "SSE is opened with GET; its first event says where to POST", allow="GET")(
                scope, receive, send
            )
            return
        identity = await self._identity(scope, receive, send)
        if identity is None:
            return
        sender = request_context_of(scope)
        principal = identity.principal.id
        if (refusal := self._full(identity)) is not None:
            await refusal(scope, receive, send)
            return
        owner = SessionOwner(names_of(Request(scope), self._limits), principal, bearer=not sender.repeated)
        session_ids: list[str] = []
        backlog = Backlog(self._limits.session_messages)

        async def noting_session(message: Message) -> None:
            """Registers the session that the first event names: from then on its messages belong to this identity."""
            if not session_ids and message["type"] == "http.response.body":
                match = _SESSION.search(message.get("body", b""))
                if match:
                    session_ids.append(match[1].decode())
                    self._sessions[session_ids[0]] = _Session(identity, owner, backlog)
                    if self._forwarding is not None:
                        await self._forwarding.relay.opened(UUID(session_ids[0]), owner)
            await send(message)

        # The first event contains the address for messages as the client sees it.
        announcing = {**scope, "root_path": prefix_of(scope)}
        self._open[principal] += 1
        stream = _Stream(identity.principal, CancelScope())
        self._streams.add(stream)
        try:
            async with self._sse.connect_sse(announcing, receive, noting_session) as (incoming, outgoing):
                options = self._server.create_initialization_options()
                with stream.scope:
                    await self._server.run(incoming, Answers(outgoing, backlog), options)
        finally:
            self._streams.discard(stream)
            self._open[principal] -= 1
            if not self._open[principal]:
                del self._open[principal]
            for session in session_ids:
                self._sessions.pop(session, None)
                if self._forwarding is not None:
                    self._forwarding.relay.closed(UUID(session))

    async def _post_message(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        session_id = request.query_params.get("session_id", "").replace("-", "").lower()
        session = self._sessions.get(session_id)
        if session is None and self._forwarding is not None and scope["method"] == "POST":
            await self._forwarding.post(scope, receive, send)
            return
        sender = request_context_of(scope)
        if session is not None and not (session.admits(sender) and self._has_names(session, request)):
            session = None
        if session is None and scope["method"] == "POST" and session_id:
            await no_session()(scope, receive, send)
            return
        if session is None:
            await self._sse.handle_post_message(scope, receive, send)
            return
        identity = session.identity.at(sender)
        if not await self._authenticator.still_valid(identity.principal):
            words = "The credential that opened this session has ended"
            await refuse(401, words, hint="Connect again.")(scope, receive, send)
            return
        try:
            if sender.principal is None and identity.principal.id != LOCAL.id:
                await self._rates.request(identity.principal.id)  # the guard did not know the principal
        except TooMany as error:
            await error_response(429, error)(scope, receive, send)
            return
        bind(scope, identity)
        if (again := await envelope.read(scope, receive, send)) is not None:
            await self._hand_over(session.backlog, scope, again, send)

    async def _hand_over(self, backlog: Backlog, scope: Scope, receive: Receive, send: Send) -> None:
        if backlog.full and scope["method"] == "POST":
            await too_many(self._limits.session_messages)(scope, receive, send)
            return
        attach(scope, backlog)
        with backlog.one():
            await self._sse.handle_post_message(scope, receive, send)

    async def _deliver(self, session: UUID, body: bytes) -> int:
        """Delivers a message that another process received to a session of this one. Returns the HTTP status of the
        answer."""
        entry = self._sessions.get(session.hex)
        if entry is None:
            return 404
        # Another process has checked the credential of the message, unless the session stands for it.
        principal = entry.identity.principal
        if not await self._authenticator.still_valid(
            principal if entry.owner.bearer else replace(principal, ends=None)
        ):
            return 404
        scope = message_scope(MESSAGES, session, body)
        bind(scope, entry.identity)
        return await status_of(partial(self._hand_over, entry.backlog), scope, body)

    async def _identity(self, scope: Scope, receive: Receive, send: Send) -> Identity | None:
        """Returns the caller's identity; None if the request was refused because of its names or its credential."""
        principal = principal_of(scope)
        try:
            request = Request(scope)
            offer = offer_of(request, self._settings, self._limits)
            return identify(principal, names_of(request, self._limits), offer)
        except Invalid as error:
            await refuse(400, error.message)(scope, receive, send)
        except Forbidden as error:
            await self._denials.record(principal, error, f"{scope['method']} {scope['route'].path}")
            await error_response(403, error)(scope, receive, send)
        return None

    def _full(self, identity: Identity) -> Response | None:
        hint = "Try again later, or use streamable HTTP."
        if len(self._sessions) >= MAX_SESSIONS:
            return refuse(503, "Too many SSE sessions are open", hint=hint)
        limit = self._limits.sessions
        if self._open[identity.principal.id] >= limit:
            whose = "Clients without a credential have" if identity.principal.id == LOCAL.id else "This credential has"
            words = f"{whose} {limit} SSE sessions open already (limits.sessions)"
            return refuse(429, words, hint=hint, code="too_many_sessions", retry_after=10)
        return None

    def _has_names(self, session: _Session, request: Request) -> bool:
        """Returns True if the address names nobody, or the same names as when the session was opened."""
        if "user" not in request.path_params:
            return True
        try:
            return names_of(request, self._limits) == session.owner.names
        except Invalid:
            return False


class McpFirst:
    """Middleware that answers at the MCP addresses and passes everything else on. A tool call skips the layers that
    only REST needs, which are a tenth of its Python."""

    def __init__(self, app: ASGIApp, doors: McpDoors) -> None:
        self._app = app
        self._routes = doors.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request or passes it on."""
        if scope["type"] == "http" and scope["path"].startswith("/mcp"):
            address = _with_slashes(scope)
            for route in self._routes:
                match, child_scope = route.matches(scope if address is None else {**scope, "path": address.path})
                if match is Match.FULL:
                    scope.update(child_scope)
                    scope["route"] = route
                    if address is not None:
                        scope["path_params"] = address.parameters
                    await route.handle(scope, receive, send)
                    return
        await self._app(scope, receive, send)


class _Address(NamedTuple):
    """An address whose names contain slashes: its path with other names in their place, and the names."""

    path: str
    parameters: dict[str, str]


def _with_slashes(scope: Scope) -> _Address | None:
    """Returns the names of an address if one contains a slash. Percent-encoded, a slash is part of the name; decoded,
    it would not be."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower() or (match := _NAMED.fullmatch(raw.decode("latin-1"))) is None:
        return None
    client, transport, user, rest = match.groups()
    return _Address(f"/mcp/-/{transport}/-{rest}", {"client": unquote(client), "user": unquote(user)})


class _Door(Route):
    """A route that accepts up to `slashes` trailing slashes, because some clients do not follow redirects."""

    def __init__(self, path: str, app: ASGIApp, slashes: int = 1) -> None:
        super().__init__(path, _Endpoint(app))
        self.path_regex = re.compile(f"{self.path_regex.pattern.removesuffix('$')}/{{0,{slashes}}}$")


class _Endpoint:
    """Wraps an ASGI application as a route's endpoint; a class, so that the router passes every method through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _nameless(transport: str, app: ASGIApp) -> list[BaseRoute]:
    """Returns routes for addresses with an empty client or user, which name that error instead of a 404."""
    return [_Door(f"/mcp/{{client}}/{transport}", app, slashes=2), _Door(f"/mcp//{transport}/{{user}}", app)]

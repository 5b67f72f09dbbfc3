"""The HTTP doors of MCP: SSE and streamable HTTP, at OpenMemory's addresses and at plain ones."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote
from uuid import UUID

from mcp.server.lowlevel import Server
from mcp.server.sse import SseServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.config import Limits
from app.errors import Invalid
from app.mcp.backlog import Answers, Backlog, attach, too_many
from app.mcp.forwarding import Forwarding, posted, status_of
from app.mcp.identity import Identity, bind, from_path
from app.mcp.refusals import no_session, refuse
from app.mcp.server import mcp_server
from app.metrics.traffic import Traffic
from app.services import Services

MESSAGES = "/mcp/messages/"
MAX_SESSIONS = 10_000
"""SSE sessions at once. Each holds a connection and a task; beyond this the next one is told to come back."""

_NAMED = re.compile("/mcp/([^/]*)/(http|sse)/([^/]*)((?:/messages)?/?)")
_SESSION = re.compile(rb"session_id=([0-9a-f]{32})")


class McpDoors:
    """The routes, and what must run while they serve.

    Streamable HTTP keeps no session: each request carries all it needs, so any replica may answer it. An SSE session
    lives in the process that holds its stream; its messages find it by `session_id`, and with it whose they are. Those
    that reach another process are forwarded, where there may be one.
    """

    def __init__(self, services: Services, traffic: Traffic) -> None:
        self._limits: Limits = services.settings.limits
        self._server: Server[Any] = mcp_server(services, traffic)
        self._sse = SseServerTransport(MESSAGES, max_request_body_size=self._limits.body)
        self._identities: dict[str, Identity] = {}
        self._backlogs: dict[str, Backlog] = {}
        self._forwarding = Forwarding(services.database, self._limits, self._deliver) if services.shared else None
        self._http = StreamableHTTPSessionManager(
            self._server, json_response=True, stateless=True, max_request_body_size=self._limits.body
        )
        self.routes: list[BaseRoute] = [
            *_both("/mcp/{client}/http/{user}", self._streamable),
            *_both("/mcp", self._streamable),
            *_both("/mcp/messages", self._post_message),
            *_both("/mcp/sse", self._open_sse),
            *_both("/mcp/{client}/sse/{user}", self._open_sse),
            *_nameless("sse", self._open_sse),
            *_both("/mcp/{client}/sse/{user}/messages", self._post_message),
            *_nameless("http", self._streamable),
        ]

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Serve while the block runs."""
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._http.run())
            if self._forwarding is not None:
                await stack.enter_async_context(self._forwarding.relay.running())
            yield

    async def _streamable(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] == "GET":
            # Allowed by every version of the protocol. A stream would stay silent: without sessions nothing is sent
            # unasked, and each client would hold a connection for it.
            await refuse(405, "MCP messages are sent here with POST", hint="For SSE: /mcp/sse.", allow="POST")(
                scope, receive, send
            )
            return
        try:
            bind(scope, from_path(Request(scope), self._limits))
        except Invalid as error:
            await refuse(400, error.message)(scope, receive, send)
            return
        await self._http.handle_request(scope, receive, send)

    async def _open_sse(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["method"] != "GET":
            await refuse(405, "SSE is opened with GET; its first event says where to POST", allow="GET")(
                scope, receive, send
            )
            return
        try:
            identity = from_path(Request(scope), self._limits)
        except Invalid as error:
            await refuse(400, error.message)(scope, receive, send)
            return
        if len(self._identities) >= MAX_SESSIONS:
            await refuse(503, "Too many SSE sessions are open", hint="Try again later, or use streamable HTTP.")(
                scope, receive, send
            )
            return
        opened: list[str] = []
        backlog = Backlog(self._limits.session_messages)

        async def noting_session(message: Message) -> None:
            """The first event names the session: from then on its messages are known to be this identity's."""
            if not opened and message["type"] == "http.response.body":
                found = _SESSION.search(message.get("body", b""))
                if found:
                    opened.append(found[1].decode())
                    self._identities[opened[0]] = identity
                    self._backlogs[opened[0]] = backlog
                    if self._forwarding is not None:
                        await self._forwarding.relay.opened(UUID(opened[0]), identity)
            await send(message)

        try:
            async with self._sse.connect_sse(scope, receive, noting_session) as (incoming, outgoing):
                options = self._server.create_initialization_options()
                await self._server.run(incoming, Answers(outgoing, backlog), options)
        finally:
            for session in opened:
                self._identities.pop(session, None)
                self._backlogs.pop(session, None)
                if self._forwarding is not None:
                    self._forwarding.relay.closed(UUID(session))

    async def _post_message(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        session = request.query_params.get("session_id", "").replace("-", "").lower()
        identity = self._identities.get(session)
        if identity is None and self._forwarding is not None and scope["method"] == "POST":
            await self._forwarding.post(scope, receive, send)
            return
        if identity is not None and "user" in request.path_params and not self._is(identity, request):
            identity = None
        if identity is None and scope["method"] == "POST" and session:
            await no_session()(scope, receive, send)
            return
        if identity is None:
            await self._sse.handle_post_message(scope, receive, send)
            return
        bind(scope, identity)
        await self._hand_over(self._backlogs[session], scope, receive, send)

    async def _hand_over(self, backlog: Backlog, scope: Scope, receive: Receive, send: Send) -> None:
        if backlog.full and scope["method"] == "POST":
            await too_many(self._limits.session_messages)(scope, receive, send)
            return
        attach(scope, backlog)
        with backlog.one():
            await self._sse.handle_post_message(scope, receive, send)

    async def _deliver(self, session: UUID, body: bytes) -> int:
        """Hand a message that another process got to a session of this one; the HTTP status of the answer."""
        identity = self._identities.get(session.hex)
        if identity is None:
            return 404
        scope = posted(MESSAGES, session, body)
        bind(scope, identity)
        return await status_of(partial(self._hand_over, self._backlogs[session.hex]), scope, body)

    def _is(self, identity: Identity, request: Request) -> bool:
        try:
            return from_path(request, self._limits) == identity
        except Invalid:
            return False


class McpFirst:
    """Middleware that answers at the MCP addresses and passes everything else on: a tool call then skips the layers
    that only REST needs, a tenth of its Python."""

    def __init__(self, app: ASGIApp, doors: McpDoors) -> None:
        self._app = app
        self._routes = doors.routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or pass it on."""
        if scope["type"] == "http" and scope["path"].startswith("/mcp"):
            named = _with_slashes(scope)
            for route in self._routes:
                match, found = route.matches(scope if named is None else {**scope, "path": named.path})
                if match is Match.FULL:
                    scope.update(found)
                    scope["route"] = route
                    if named is not None:
                        scope["path_params"] = named.parameters
                    await route.handle(scope, receive, send)
                    return
        await self._app(scope, receive, send)


class _Named(NamedTuple):
    """An address whose names have slashes in them: the address with other names in their place, and the names."""

    path: str
    parameters: dict[str, str]


def _with_slashes(scope: Scope) -> _Named | None:
    """The names of an address, if one has a slash: percent-encoded it is part of the name, decoded it would not be."""
    raw: bytes = scope.get("raw_path") or b""
    if b"%2f" not in raw.lower() or (found := _NAMED.fullmatch(raw.decode("latin-1"))) is None:
        return None
    client, transport, user, rest = found.groups()
    return _Named(f"/mcp/-/{transport}/-{rest}", {"client": unquote(client), "user": unquote(user)})


def mcp_doors(services: Services, traffic: Traffic) -> McpDoors:
    """The MCP doors over the services; calls of tools are counted in `traffic`."""
    return McpDoors(services, traffic)


class _Endpoint:
    """An ASGI application as a route's endpoint: a class, so that the router passes every method through."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def _both(path: str, app: ASGIApp) -> list[BaseRoute]:
    """The route with and without a trailing slash: some clients do not follow redirects."""
    return [Route(form, _Endpoint(app)) for form in (path, path + "/")]


def _nameless(transport: str, app: ASGIApp) -> list[BaseRoute]:
    """Addresses whose client or user was left empty, so that they are told instead of not found."""
    without_user = (f"/mcp/{{client}}/{transport}{slashes}" for slashes in ("", "/", "//"))
    return [
        *(Route(path, _Endpoint(app)) for path in without_user),
        *_both(f"/mcp//{transport}/{{user}}", app),
    ]

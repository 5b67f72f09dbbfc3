"""Names the app of a client whose address names none: the client's own `clientInfo.name`.

A client gives its name when it initializes, or with every message of the sessionless protocol. Streamable HTTP keeps no
session here, so the answer to `initialize` carries the name in `Mcp-Session-Id`, which the client repeats with every
message.
"""

from __future__ import annotations

import re
from secrets import token_hex
from typing import Any
from urllib.parse import quote, unquote

from mcp.server.context import ServerRequestContext
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER
from pydantic_core import from_json
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.types import Message, Send

from openmemory.access.keys import resembles_credential
from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid
from openmemory.memories import validation

_SESSION = re.compile(r"client\.(.+)\.[0-9a-f]{32}")


def client_name(context: ServerRequestContext[Any], limits: LimitSettings) -> str | None:
    """Returns the name that the client gave for itself; None if it gave none that an app can have."""
    params = context.session.client_params
    if params is not None:
        return usable(params.client_info.name, limits)
    request = context.request
    session = request.headers.get(MCP_SESSION_ID_HEADER, "") if isinstance(request, Request) else ""
    # A session of another server, from before a change of the address, names nobody.
    match = _SESSION.fullmatch(session)
    return None if match is None else usable(unquote(match[1]), limits)


def usable(name: Any, limits: LimitSettings) -> str | None:
    """Returns the name without surrounding blanks; None if no app can have it."""
    if not isinstance(name, str) or not name.isprintable() or resembles_credential(name):
        return None
    try:
        return validation.name(name.strip(), "clientInfo.name", limits)
    except Invalid:
        return None


def repeating_name(body: bytes, limits: LimitSettings, send: Send) -> Send:
    """Returns a `send` whose response asks the client to repeat its name, if the message initializes with one."""
    if b'"initialize"' not in body:
        return send
    message = from_json(body)
    params = message.get("params") if message.get("method") == "initialize" else None
    info = params.get("clientInfo") if isinstance(params, dict) else None
    name = usable(info.get("name"), limits) if isinstance(info, dict) else None
    if name is None:
        return send
    session = f"client.{quote(name, safe='')}.{token_hex(16)}"

    async def repeating(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 200:
            MutableHeaders(scope=message)[MCP_SESSION_ID_HEADER] = session
        await send(message)

    return repeating

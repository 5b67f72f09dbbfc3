"""The request context: set on an HTTP request by the guard, and read by every endpoint."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any
from zoneinfo import ZoneInfo

from openmemory.identity.principal import Principal

_KEY = "openmemory.identity.request"
_PREFIX = "openmemory.identity.prefix"


@dataclass(frozen=True, slots=True)
class RequestContext:
    """The principal that a request proved; None if only the session that it belongs to can tell.

    `repeated`: True if the credential comes with every message. An old MCP client sends it in the address when it
    connects, and a local client needs none. `timezone`: the time zone that the request names.
    """

    principal: Principal | None
    address: str | None
    request: str
    repeated: bool = False
    timezone: ZoneInfo | None = None


def bind(scope: MutableMapping[str, Any], sender: RequestContext) -> None:
    """Attach the request context to a request."""
    scope[_KEY] = sender


def request_context_of(scope: MutableMapping[str, Any]) -> RequestContext:
    """Returns the request context that the guard set. A request without one is not served."""
    sender = scope[_KEY]
    assert isinstance(sender, RequestContext)
    return sender


def principal_of(scope: MutableMapping[str, Any]) -> Principal:
    """The principal that a request proved."""
    principal = request_context_of(scope).principal
    assert principal is not None
    return principal


def proved_principal_of(scope: MutableMapping[str, Any]) -> Principal | None:
    """The principal that a request proved; None if it was refused before, or proved none."""
    context = scope.get(_KEY)
    return context.principal if isinstance(context, RequestContext) else None


def bind_prefix(scope: MutableMapping[str, Any], prefix: str) -> None:
    """Attach the path prefix that a trusted proxy removed from the address of a request."""
    scope[_PREFIX] = prefix


def prefix_of(scope: MutableMapping[str, Any]) -> str:
    """Returns the path prefix that a trusted proxy removed, such as `/memory`; empty if there is none."""
    prefix: str = scope.get(_PREFIX, "")
    return prefix

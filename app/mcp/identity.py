"""Whose request this is: the user and app that the address names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.types import Scope

from app.config import Limits
from app.errors import Invalid
from app.memories import checks

_KEY = "openmemory.identity"


@dataclass(frozen=True, slots=True)
class Identity:
    """Names as the address has them; None means the configured default."""

    user: str | None
    app: str | None


def from_path(request: Request, limits: Limits) -> Identity:
    """The names in `/mcp/{client}/…/{user}`, or none.

    Raises:
        Invalid: one is blank, too long, or cannot be stored.
    """
    if not request.path_params:
        return Identity(None, None)
    return Identity(_name(request, "user", limits), _name(request, "client", limits))


def _name(request: Request, part: str, limits: Limits) -> str:
    field = f"{part} (in the address)"
    name = request.path_params.get(part, "")
    if "\ufffd" in name and b"%EF%BF%BD" not in request.scope.get("raw_path", b"").upper():
        raise Invalid(field, "must be UTF-8, percent-encoded")  # the server replaced what it could not decode
    return checks.name(name, field, limits)


def bind(scope: Scope, identity: Identity) -> None:
    """Note on a request whose it is, for the tools to read."""
    scope[_KEY] = identity


def identity_of(request: Any) -> Identity:
    """What `bind` noted."""
    identity = request.scope[_KEY]
    assert isinstance(identity, Identity)
    return identity

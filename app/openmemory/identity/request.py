"""Who sent an HTTP request: noted on it by the guard, read by every door."""

from __future__ import annotations

from collections.abc import MutableMapping
from dataclasses import dataclass
from typing import Any

from openmemory.identity.principal import Principal

_KEY = "openmemory.identity.request"


@dataclass(frozen=True, slots=True)
class Sender:
    """The principal that a request proved; None where only the session that it is for can tell.

    `repeated`: whether the credential will come with every message; an old MCP client sends it in the address, when it
    connects, and a machine's own needs none.
    """

    principal: Principal | None
    address: str | None
    request: str
    repeated: bool = False


def bind(scope: MutableMapping[str, Any], sender: Sender) -> None:
    """Note on a request who sent it."""
    scope[_KEY] = sender


def sender_of(scope: MutableMapping[str, Any]) -> Sender:
    """What the guard noted. Without a guard there is nobody to serve."""
    sender = scope[_KEY]
    assert isinstance(sender, Sender)
    return sender


def principal_of(scope: MutableMapping[str, Any]) -> Principal:
    """The principal that a request proved."""
    principal = sender_of(scope).principal
    assert principal is not None
    return principal

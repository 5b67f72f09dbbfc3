"""Who sends a request, as far as its credential proves, and what that one may claim. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from openmemory.errors import Forbidden


class Scope(StrEnum):
    """What a credential may do. None includes another."""

    READ = "read"
    """See memories, their history and what is known of them."""
    WRITE = "write"
    """Add, change, forget and erase; rules and apps."""
    ADMIN = "admin"
    """Keys, the whole audit log, the whole index."""


ALL_SCOPES = frozenset(Scope)


class InsufficientScope(Forbidden):
    """The credential was not made for this; `scope` would have been enough."""

    code = "insufficient_scope"

    def __init__(self, scope: Scope, message: str) -> None:
        super().__init__(message)
        self.scope = scope


class Door(StrEnum):
    """Through what a request came."""

    REST = "rest"
    MCP = "mcp"
    JOB = "job"
    """No request: a job that carries out what a user has ordered."""


@dataclass(frozen=True, slots=True)
class Principal:
    """What a credential proves. Names in a request's address or body are claims that it must allow.

    `id` tells credentials apart: `local`, `settings`, `key:<uuid>` or `token:<issuer> <subject> <client>`; `name` is
    what the audit log shows to people. None for `user` allows every user; None for `app` allows every app of the user,
    and to speak as the user themself; None for `namespaces` allows all. `address` and `request` are those of the one
    request that this principal sent. `ends`: when a token ends, in seconds since 1970; a key is looked up instead.
    """

    id: str
    name: str
    user: str | None = None
    app: str | None = None
    namespaces: tuple[str, ...] | None = None
    scopes: frozenset[Scope] = ALL_SCOPES
    door: Door = Door.REST
    address: str | None = None
    request: str | None = None
    ends: float | None = None

    @property
    def assistant(self) -> bool:
        """Whether an assistant's app asks, whose pace is limited: over MCP, or with a credential of its own."""
        return self.door is Door.MCP or self.app is not None

    @property
    def metered(self) -> bool:
        """True if its requests are counted: those with a key or a token are."""
        return self.id.startswith(("key:", "token:"))

    def claimed_user(self, user: str | None) -> str | None:
        """The user that a request means; None if it names none and the credential is nobody's.

        Raises:
            Forbidden: the credential is another's. The answer does not depend on whether the named user exists.
        """
        if self.user is None or user is None or user == self.user:
            return user or self.user
        raise Forbidden(
            "This credential does not speak for the user that the request names.",
            code="user_not_allowed",
            hint="Leave the user out, or name the one that the credential was made for.",
        )

    def claimed_app(self, app: str | None) -> str | None:
        """The app that a request means; None if it names none and the credential is no app's.

        Raises:
            Forbidden: the credential is another app's.
        """
        if self.app is None or app is None or app == self.app:
            return app or self.app
        raise Forbidden(
            "This credential does not speak for the app that the request names.",
            code="app_not_allowed",
            hint="Leave the app out, or name the one that the credential was made for.",
        )

    def must(self, scope: Scope) -> None:
        """Refuse what the credential was not made for.

        Raises:
            InsufficientScope: it lacks the scope.
        """
        if scope not in self.scopes:
            raise InsufficientScope(scope, f"This needs the scope {scope}, which the credential lacks.")

    @property
    def operates(self) -> bool:
        """True if it may see the service as a whole: it is an administrator's, or reads for every user."""
        everybody = self.user is None and self.app is None and self.namespaces is None
        return Scope.ADMIN in self.scopes or (everybody and Scope.READ in self.scopes)

    def must_operate(self) -> None:
        """Refuse to tell of the service as a whole to those who speak for one user, administrators aside.

        Raises:
            Forbidden: the credential is one user's and no administrator's.
        """
        if not self.operates:
            words = "This tells of all users: it needs the scope admin, or a credential for every user."
            raise InsufficientScope(Scope.ADMIN, words)


LOCAL = Principal("local", "this machine")
"""Whoever may use the machine that the service runs on, where no credential is asked for."""

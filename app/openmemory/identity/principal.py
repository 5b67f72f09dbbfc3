"""The principal behind a request, as its credential proves it, and the identities that it may claim. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from zoneinfo import ZoneInfo

from openmemory.errors import Forbidden


class Scope(StrEnum):
    """The rights of a credential. No scope includes another."""

    READ = "read"
    """Read memories, their history and related data."""
    WRITE = "write"
    """Add, change, forget and erase memories; manage rules and apps."""
    ADMIN = "admin"
    """Manage keys within the bounds of the credential; without bounds, also the service as a whole: its configuration,
    the whole audit log and the whole index."""


ALL_SCOPES = frozenset(Scope)


class InsufficientScope(Forbidden):
    """The credential lacks a required scope; `scope` would have been enough."""

    code = "insufficient_scope"

    def __init__(self, scope: Scope, message: str) -> None:
        super().__init__(message)
        self.scope = scope


class Door(StrEnum):
    """The entry point through which a request came."""

    REST = "rest"
    MCP = "mcp"
    JOB = "job"
    """Not a request: a job that carries out a user's instruction."""


@dataclass(frozen=True, slots=True)
class Principal:
    """The identity that a credential proves. Names in a request's address or body are claims that it must allow.

    `id` identifies the credential: `local`, `settings`, `key:<uuid>` or `token:<issuer> <subject> <client>`. `name` is
    shown to people in the audit log. None for `user` allows every user; None for `app` allows every app of the user,
    and acting as the user themself; None for `namespaces` allows all. `address`, `request` and `timezone` belong to the
    one request that this principal sent. `ends`: when a token expires, in seconds since 1970; keys are looked up
    instead. `administrator`: the settings name the user, so that the scope admin holds for the whole service.
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
    administrator: bool = False
    timezone: ZoneInfo | None = None

    @property
    def assistant(self) -> bool:
        """Returns True for an assistant's app, which is rate limited: over MCP, or with a credential of its own."""
        return self.door is Door.MCP or self.app is not None

    @property
    def metered(self) -> bool:
        """Returns True if its requests are counted, as those with a key or a token are."""
        return self.id.startswith(("key:", "token:"))

    def claimed_user(self, user: str | None) -> str | None:
        """Returns the user that a request means; None if it names none and the credential is not bound to a user.

        Raises:
            Forbidden: the credential is bound to another user. Whether the named user exists makes no difference.
        """
        if self.user is None or user is None or user == self.user:
            return user or self.user
        raise Forbidden(
            "This credential does not speak for the user that the request names.",
            code="user_not_allowed",
            hint="Leave the user out, or name the one that the credential was made for.",
        )

    def claimed_app(self, app: str | None) -> str | None:
        """Returns the app that a request means; None if it names none and the credential is not bound to an app.

        Raises:
            Forbidden: the credential is bound to another app.
        """
        if self.app is None or app is None or app == self.app:
            return app or self.app
        raise Forbidden(
            "This credential is not valid for the app that the request names.",
            code="app_not_allowed",
            hint="Leave the app out, or name the one that the credential was made for.",
        )

    def must(self, scope: Scope) -> None:
        """Require a scope.

        Raises:
            InsufficientScope: it lacks the scope.
        """
        if scope not in self.scopes:
            raise InsufficientScope(scope, f"This needs the scope {scope}, which the credential lacks.")

    @property
    def bounded(self) -> bool:
        """Returns True if it is bound to a user, an app or namespaces, and no settings make it an administrator."""
        return not self.administrator and (self.user, self.app, self.namespaces) != (None, None, None)

    @property
    def administers(self) -> bool:
        """Returns True if it may manage what concerns every user."""
        return Scope.ADMIN in self.scopes and not self.bounded

    def must_administer(self) -> None:
        """Require a principal that may manage what concerns every user.

        Raises:
            Forbidden: it lacks the scope admin, or has it only for its user, app or namespaces.
        """
        self.must(Scope.ADMIN)
        if self.bounded:
            raise Forbidden(
                "This concerns every user, and the credential has the scope admin only within its bounds.",
                code="admin_bounded",
                hint="It needs a credential with the scope admin that is bound to no user, app or namespace.",
            )

    def must_cover(self, user: str | None, app: str | None, namespaces: Sequence[str] | None) -> None:
        """Require that another credential with these bounds would reach no further than this one.

        Raises:
            Forbidden: it would; the code names the bound.
        """
        if not self.bounded:
            return
        allowed = self.namespaces
        for what, within in (
            ("user", self.user in (None, user)),
            ("app", self.app in (None, app)),
            ("namespace", allowed is None or (namespaces is not None and set(namespaces) <= set(allowed))),
        ):
            if not within:
                raise Forbidden(
                    f"A credential that is bound to a {what} manages only keys with the same bound, or a narrower one.",
                    code=f"{what}_not_allowed",
                )

    @property
    def operates(self) -> bool:
        """Returns True if it may see the service as a whole: as an administrator, or with read access to every user."""
        return self.administers or (not self.bounded and Scope.READ in self.scopes)

    def must_operate(self) -> None:
        """Require a principal that may see the service as a whole: an administrator, or one without bounds.

        Raises:
            Forbidden: the credential is bound to a user, an app or namespaces.
        """
        if not self.operates:
            if Scope.ADMIN in self.scopes:
                self.must_administer()
            words = "This tells of all users: it needs the scope admin, or a credential for every user."
            raise InsufficientScope(Scope.ADMIN, words)


LOCAL = Principal("local", "this machine")
"""The principal of requests from the machine that the service runs on, where no credential is required."""

"""The caller: resolved once at the edge, and the first argument of every use case."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID
from zoneinfo import ZoneInfo

from openmemory.errors import Forbidden
from openmemory.identity.principal import LOCAL, Principal, Scope
from openmemory.serialization.zones import UTC_ZONE, zone_named

Default = Literal["user", "own_app"]

UNKNOWN = UUID(int=0)
"""A placeholder for the id of a user or an app that does not exist. Nothing ever has this id."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, and the app that acts for them.

    `owner` is true if the user themself calls (REST without an app, the page, the CLI): no app rule applies to them,
    and they may see memories that are not active. `app_id` is then only the name under which their reads are logged.
    The rights of the `principal` also limit the caller. A user or an app that does not exist, and that the principal
    may not create, is `UNKNOWN`. `preview`: the user looks at what the app would read, so the app reads nothing.
    `timezone`: that of the request, of the user, or of the settings; it says which moments "today" is.
    """

    user_id: UUID
    user: str
    app_id: UUID
    app: str
    owner: bool = False
    default: Default = "user"
    principal: Principal = LOCAL
    preview: bool = False
    timezone: ZoneInfo = UTC_ZONE

    @classmethod
    def anyone(cls, *, owner: bool, default: Default, everywhere: bool = True) -> Caller:
        """A placeholder caller of one kind, for building statements with `readable_by` that all such callers share.

        `everywhere`: all namespaces are visible to them.
        """
        principal = LOCAL if everywhere else replace(LOCAL, namespaces=())
        return cls(UNKNOWN, "", UNKNOWN, "", owner=owner, default=default, principal=principal)

    def in_timezone(self, name: str | None) -> Caller:
        """Returns the same caller in the time zone of this IANA name; None leaves it as it is.

        Raises:
            Invalid: there is no such zone.
        """
        return self if name is None else replace(self, timezone=zone_named(name))

    @property
    def known_user(self) -> UUID | None:
        """The user's id; None if the user does not exist."""
        return None if self.user_id == UNKNOWN else self.user_id

    @property
    def known_app(self) -> UUID | None:
        """The app's id; None if the user has no such app."""
        return None if self.app_id == UNKNOWN else self.app_id

    @property
    def everywhere(self) -> bool:
        """True if the caller reaches every namespace of the user."""
        return self.principal.namespaces is None

    @property
    def parameters(self) -> dict[str, Any]:
        """The parameters that `readable_by` binds."""
        namespaces = self.principal.namespaces
        return {
            "caller_user_id": self.user_id,
            "caller_app_id": self.app_id,
            "caller_namespaces": None if namespaces is None else list(namespaces),
        }

    def may_read(self) -> None:
        """Require that the credential may read.

        Raises:
            Forbidden: it lacks the scope.
        """
        self.principal.must(Scope.READ)

    def may_write(self, *namespaces: str) -> None:
        """Require that the credential may write, and may write in these namespaces.

        Raises:
            Forbidden: it lacks the scope, or cannot access one of the namespaces.
        """
        self.principal.must(Scope.WRITE)
        allowed = self.principal.namespaces
        if allowed is not None and not set(namespaces) <= set(allowed):
            raise Forbidden(
                "This credential gives no access to the namespace that the request names.",
                code="namespace_not_allowed",
                hint=f"It reaches {', '.join(allowed)}.",
            )

    def reached(self, namespaces: tuple[str, ...]) -> tuple[str, ...] | None:
        """Returns those of the namespaces that the credential can access. An empty tuple, given or returned, means all.

        Returns None if it can access none of them. Other namespaces must not be read at all, not even to weigh words.
        """
        allowed = self.principal.namespaces
        if allowed is None:
            return namespaces
        return tuple(name for name in namespaces or allowed if name in allowed) or None

    def must_be_owner(self, what: str, *, everywhere: bool = True) -> None:
        """Require the user themself; `everywhere`: with access to all of their namespaces.

        Raises:
            Forbidden: the caller is an app, or its credential is limited to some namespaces.
        """
        if not self.owner:
            raise Forbidden(f"Only the user may {what}.", code="owner_only")
        if everywhere and not self.everywhere:
            raise Forbidden(
                f"Only a credential for all of the user's namespaces may {what}.", code="namespace_not_allowed"
            )

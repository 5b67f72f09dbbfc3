"""Who is asking: resolved once at the edge, and the first argument of every use case."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal
from uuid import UUID

from openmemory.errors import Forbidden
from openmemory.identity.principal import LOCAL, Principal, Scope

Default = Literal["user", "own_app"]

UNKNOWN = UUID(int=0)
"""In the place of the id of a user or an app that there is not: nobody and nothing has it."""


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, and the app that speaks for them.

    `owner` is true where the person themself asks (REST without an app, the page, the CLI): no app rule applies to
    them, and they may see memories that are not active. `app_id` is then only the name their reads are logged under.
    What the `principal` behind them may not do, they may not. A user or an app that is not there, and that the
    principal may not make, is `UNKNOWN`.
    """

    user_id: UUID
    user: str
    app_id: UUID
    app: str
    owner: bool = False
    default: Default = "user"
    principal: Principal = LOCAL

    @classmethod
    def anyone(cls, *, owner: bool, default: Default, everywhere: bool = True) -> Caller:
        """Somebody of one sort: for statements with `readable_by`, which are the same for all of it.

        `everywhere`: no namespace is kept from them.
        """
        principal = LOCAL if everywhere else replace(LOCAL, namespaces=())
        return cls(UNKNOWN, "", UNKNOWN, "", owner=owner, default=default, principal=principal)

    @property
    def known_user(self) -> UUID | None:
        """The user's id; None if there is no such user."""
        return None if self.user_id == UNKNOWN else self.user_id

    @property
    def known_app(self) -> UUID | None:
        """The app's id; None if the user has no such app."""
        return None if self.app_id == UNKNOWN else self.app_id

    @property
    def parameters(self) -> dict[str, Any]:
        """What `readable_by` binds."""
        namespaces = self.principal.namespaces
        return {
            "caller_user_id": self.user_id,
            "caller_app_id": self.app_id,
            "caller_namespaces": None if namespaces is None else list(namespaces),
        }

    def may_read(self) -> None:
        """Refuse to read for a credential that was not made for it.

        Raises:
            Forbidden: it lacks the scope.
        """
        self.principal.must(Scope.READ)

    def may_write(self, *namespaces: str) -> None:
        """Refuse to write, and to write in these namespaces, for a credential that was not made for it.

        Raises:
            Forbidden: it lacks the scope, or a namespace is none of its own.
        """
        self.principal.must(Scope.WRITE)
        allowed = self.principal.namespaces
        if allowed is not None and not set(namespaces) <= set(allowed):
            raise Forbidden(
                "This credential does not reach the namespace that the request names.",
                code="namespace_not_allowed",
                hint=f"It reaches {', '.join(allowed)}.",
            )

    def reached(self, namespaces: tuple[str, ...]) -> tuple[str, ...] | None:
        """Those of the namespaces that the credential reaches; none given means all, and so does an empty answer.

        None: there are none. Nothing of the others may be looked at, not even to weigh words.
        """
        allowed = self.principal.namespaces
        if allowed is None:
            return namespaces
        return tuple(name for name in namespaces or allowed if name in allowed) or None

    def must_be_owner(self, what: str, *, everywhere: bool = True) -> None:
        """Refuse what only the user may do; `everywhere`: with all of their namespaces before them.

        Raises:
            Forbidden: an app asks, or a credential that reaches only some namespaces.
        """
        if not self.owner:
            raise Forbidden(f"Only the user may {what}.", code="owner_only")
        if everywhere and self.principal.namespaces is not None:
            raise Forbidden(
                f"Only a credential for all of the user's namespaces may {what}.", code="namespace_not_allowed"
            )

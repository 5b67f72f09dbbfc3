"""Who is asking: resolved once at the edge, and the first argument of every use case."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal
from uuid import UUID

Default = Literal["user", "own_app"]


@dataclass(frozen=True, slots=True)
class Caller:
    """A user, and the app that speaks for them.

    `owner` is true where the person themself asks (REST without an app, the page, the CLI): no app rule applies to
    them, and they may see memories that are not active. `app_id` is then only the name their reads are logged under.
    """

    user_id: UUID
    user: str
    app_id: UUID
    app: str
    owner: bool = False
    default: Default = "user"

    @property
    def parameters(self) -> dict[str, Any]:
        """What `readable_by` binds."""
        return {"caller_user_id": self.user_id, "caller_app_id": self.app_id}

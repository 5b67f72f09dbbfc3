"""Categories that the service assigns, over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body
from pydantic import BaseModel, Field

from app.memories import checks
from app.memories.filing import Waiting
from app.rest.caller import OwnerOrDefault, TheAsking, TheServices
from app.rest.errors import documented
from app.rest.routing import Router

router = Router("/api/v1/categories", "memories")


class AssignCategories(BaseModel):
    """Whose memories are to be filed."""

    user_id: str = Field(description="The user.")
    again: bool = Field(
        False, description="Also those that the service has looked at before; what a client has filed stays as it is."
    )


@router.post("/assign", responses=documented(403, 404, 409), status_code=202)
async def assign_categories(
    services: TheServices,
    asking: TheAsking,
    wanted: Annotated[
        AssignCategories,
        Body(
            openapi_examples={
                "what waits": {"value": {"user_id": "alice"}},
                "all that no client has filed": {"value": {"user_id": "alice", "again": True}},
            }
        ),
    ],
) -> Waiting:
    """Have a user's memories filed under categories in the background; the answer tells how many wait.

    `GET` of the same path tells how far it is.
    """
    checks.name(wanted.user_id, "user_id", services.settings.limits)
    caller = await asking.as_owner(wanted.user_id)
    return await services.filing.order(caller, again=wanted.again)


@router.get("/assign", responses=documented(403, 404))
async def categories_waiting(services: TheServices, caller: OwnerOrDefault) -> Waiting:
    """Tell how many of a user's memories wait for the service to look for their categories."""
    return await services.filing.waiting(caller)

"""Access rules over REST."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Body, Query
from pydantic import BaseModel

from openmemory.access.grants import Grant, GrantCreate, GrantExplanation
from openmemory.memories import validation
from openmemory.memories.state import State
from openmemory.rest.caller import BodyUser, GivenId, Owner, OwnerOfGrant, TheAsking, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.schemas import Message

router = Router("/api/v1/grants", "access")


class GrantOfUser(GrantCreate):
    """A rule that a user makes for their apps."""

    user_id: BodyUser = None


class GrantList(BaseModel):
    """The rules of a user, oldest first."""

    grants: list[Grant]


@router.post("", responses=documented(403, 404, 409), status_code=201)
async def create_grant(
    services: TheServices,
    asking: TheAsking,
    new: Annotated[
        GrantOfUser,
        Body(
            openapi_examples={
                "hide a project from one app": {
                    "value": {
                        "user_id": "alice",
                        "effect": "deny",
                        "app": "cursor",
                        "object_type": "namespace",
                        "object": "private",
                    }
                },
                "hide everything from every app": {
                    "value": {"user_id": "alice", "effect": "deny", "object_type": "all"}
                },
            }
        ),
    ],
) -> Grant:
    """Allow or deny apps to read. The same rule again is answered with the one that is in force."""
    names = validation.names(new, ("app", "object"), services.settings.limits)
    caller = await asking.as_owner(new.user_id, make=True)
    given = new.model_dump(exclude={"user_id"}) | names
    if new.object_type == "memory" and given["object"]:
        [id_] = await services.short_ids.resolved(caller, [given["object"]], "object", State.ACTIVE)
        given["object"] = str(id_)
    return await services.grants.create(caller, GrantCreate.model_validate(given))


@router.get("", responses=documented(403, 404))
async def list_grants(
    services: TheServices,
    caller: Owner,
    app: Annotated[str | None, Query(description="Only the rules for this app.")] = None,
) -> GrantList:
    """List the rules of a user."""
    if app is not None:
        app = validation.name(app, "app", services.settings.limits)
    return GrantList(grants=await services.grants.list(caller, app=app))


@router.get("/explain", responses=documented(403, 404, 409))
async def explain_grants(
    services: TheServices,
    caller: Owner,
    app: Annotated[str, Query(description="The app that would read.", examples=["cursor"])],
    memory_id: Annotated[
        GivenId,
        Query(
            description="The memory's id, or its first characters.", examples=["6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"]
        ),
    ],
) -> GrantExplanation:
    """Tell whether an app may read a memory, and by which rule."""
    app = validation.name(app, "app", services.settings.limits)
    [id_] = await services.short_ids.resolved(caller, [memory_id], "memory_id", State.ACTIVE)
    return await services.grants.explain(caller, app, id_)


@router.delete("/{grant_id}", responses=documented(403, 404))
async def revoke_grant(services: TheServices, caller: OwnerOfGrant, grant_id: UUID) -> Message:
    """End a rule."""
    await services.grants.revoke(caller, grant_id)
    return Message(message="Successfully revoked the grant")

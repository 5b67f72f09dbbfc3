"""Use cases of access rules: which app may read what."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import Field

from openmemory.access.schemas import (
    Grant,
    GrantApp,
    GrantCreate,
    GrantEffect,
    GrantExplanation,
    GrantList,
    GrantObject,
    GrantType,
)
from openmemory.identity.names import checked_name
from openmemory.memories.state import State
from openmemory.operations.description import InCommand, MemoryReference, Speaker, operation
from openmemory.operations.parameters import Message, name_or_none

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "access"
PATH = "/api/v1/grants"


@operation(
    "POST", PATH, command="grants add", tag=TAG, speaker=Speaker.NEW_OWNER, errors=(403, 404, 409), status=201,
    body="GrantOfUser",
    examples={
        "hide a project from one app": {
            "user_id": "alice", "effect": "deny", "app": "cursor", "object_type": "namespace", "object": "private",
        },
        "hide everything from every app": {"user_id": "alice", "effect": "deny", "object_type": "all"},
    },
)  # fmt: skip
async def create_grant(
    services: Services,
    caller: Caller,
    *,
    effect: GrantEffect,
    object_type: GrantType,
    object: Annotated[GrantObject, InCommand.ARGUMENT] = None,
    app: GrantApp = None,
) -> Grant:
    """Add a rule, which allows or denies apps to read.

    The same rule again is answered with the one that is in force.
    """
    app, named = name_or_none(services, app, "app"), name_or_none(services, object, "object")
    if object_type == "memory" and named:
        [id_] = await services.short_ids.resolved(caller, [named], "object", State.ACTIVE)
        named = str(id_)
    new = GrantCreate(effect=effect, app=app, object_type=object_type, object=named)
    return await services.grants.create(caller, new)


@operation("GET", PATH, command="grants list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_grants(
    services: Services,
    caller: Caller,
    *,
    app: Annotated[str | None, Field(description="Only the rules for this app.")] = None,
) -> GrantList:
    """List the rules in force, oldest first."""
    return GrantList(grants=await services.grants.list(caller, app=name_or_none(services, app, "app")))


@operation("GET", f"{PATH}/explain", command="grants explain", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409))
async def explain_grants(
    services: Services,
    caller: Caller,
    *,
    memory_id: Annotated[
        UUID,
        MemoryReference(State.ACTIVE),
        Field(
            description="The memory's id, or its first characters.", examples=["6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"]
        ),
    ],
    app: Annotated[str, InCommand.OPTION, Field(description="The app that would read.", examples=["cursor"])],
) -> GrantExplanation:
    """Show if an app may read a memory, and which rule decides."""
    app = checked_name(app, "app", services.settings.limits.name)
    return await services.grants.explain(caller, app, memory_id)


@operation(
    "DELETE", f"{PATH}/{{grant_id}}", command="grants revoke", tag=TAG, speaker=Speaker.OWNER, owned="grant",
    errors=(403, 404),
)  # fmt: skip
async def revoke_grant(services: Services, caller: Caller, *, grant_id: UUID) -> Message:
    """Revoke a rule."""
    await services.grants.revoke(caller, grant_id)
    return Message(message="Successfully revoked the grant")

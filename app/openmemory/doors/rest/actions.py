"""REST endpoints that change the state of many memories."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Body, HTTPException, Query
from pydantic import BaseModel, Discriminator, Field, Tag

from openmemory.doors.rest.http.caller import LEFT_OUT, BodyUser, GivenId, TheAsking, TheServices
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.schemas import MemoriesOfUser
from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryQuery
from openmemory.memories.state import State
from openmemory.operations.parameters import Message
from openmemory.services import Services

router = Router("/api/v1/memories/actions", "memories")

_ID = "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"
_SOME = {"one": {"value": {"memory_ids": [_ID], "user_id": "alice"}}}


def _form(body: Any) -> str:
    return "(ids)" if isinstance(body, list) else "(object)"


IdsOrObject = Annotated[
    Annotated[list[GivenId], Tag("(ids)")] | Annotated[MemoriesOfUser, Tag("(object)")], Discriminator(_form)
]


class PauseBody(BaseModel):
    """The memories of the user whose state changes. The first condition that is given decides."""

    user_id: BodyUser = None
    global_pause: bool | None = Field(default=False, description="All memories of the user.")
    app_id: UUID | None = Field(default=None, description="All memories that this app wrote.")
    all_for_app: bool | None = Field(
        default=False, description="With memory_ids: skip memories that cannot be changed."
    )
    memory_ids: list[GivenId] | None = None
    category_ids: list[UUID] | None = None
    state: State | None = Field(default=None, description="The new state; left out: paused.")


@router.post("/archive", responses=documented(403, 404, 409, 413))
async def archive_memories(
    services: TheServices,
    asking: TheAsking,
    which: Annotated[
        IdsOrObject,
        Body(openapi_examples={"ids": {"value": [_ID]}, **_SOME}),
    ],
    user_id: Annotated[
        str | None, Query(description=f"The user's name or internal id, if the body is a list of ids; {LEFT_OUT}")
    ] = None,
) -> Message:
    """Archives memories: no app and no search finds them. All or none."""
    id_texts, user = (which, user_id) if isinstance(which, list) else (which.memory_ids, which.user_id)
    caller = await asking.as_owner_by_either(user)
    ids = await services.short_ids.resolved(caller, id_texts, "memory_ids", State.ARCHIVED)
    count = await services.memories.change_state(caller, ids, State.ARCHIVED)
    return Message(message=f"Successfully archived {count} memories")


@router.post("/pause", responses=documented(400, 403, 404, 409, 413))
async def pause_memories(
    services: TheServices,
    asking: TheAsking,
    which: Annotated[
        PauseBody,
        Body(
            openapi_examples={
                "some": {"value": {"user_id": "alice", "memory_ids": [_ID]}},
                "resume": {"value": {"user_id": "alice", "memory_ids": [_ID], "state": "active"}},
                "everything": {"value": {"user_id": "alice", "global_pause": True}},
            }
        ),
    ],
) -> Message:
    """Pauses memories, or changes them to the given state, within the user's own memories only."""
    caller = await asking.as_owner(which.user_id)
    return Message(message=await _pause(services, caller, which))


async def _pause(services: Services, caller: Caller, which: PauseBody) -> str:
    memories, target = services.memories, which.state or State.PAUSED
    alive = MemoryQuery(states=(State.ACTIVE, State.PAUSED))
    if which.global_pause:
        await memories.change_state_where(caller, alive, target)
        return "Successfully paused all memories"
    if which.app_id:
        query = MemoryQuery(states=alive.states, app_ids=(which.app_id,))
        await memories.change_state_where(caller, query, target)
        return f"Successfully paused all memories for app {which.app_id}"
    if which.memory_ids:
        ids = await services.short_ids.resolved(caller, which.memory_ids, "memory_ids", target)
        count = await memories.change_state(caller, ids, target, strict=not which.all_for_app)
        return "Successfully paused all memories" if which.all_for_app else f"Successfully paused {count} memories"
    if which.category_ids:
        query = MemoryQuery(states=alive.states, category_ids=tuple(which.category_ids))
        await memories.change_state_where(caller, query, target)
        return f"Successfully paused memories in {len(which.category_ids)} categories"
    raise HTTPException(400, "Invalid pause request parameters")

"""REST endpoints for links between memories."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.projects.schemas import Linked, LinkList
from openmemory.rest.caller import AskingApp, BodyUser, GivenId, TheAsking, TheServices, UserId
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router

router = Router("/api/v1/links", "projects")


class LinkBody(BaseModel):
    """Two memories to link."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that links them; left out: the credential's.")
    from_id: GivenId
    rel: str = Field(description="What the first is to the second.", examples=["fixes", "depends_on"])
    to_id: GivenId


class LinkRemoved(BaseModel):
    """The link is gone."""

    removed: bool = True


_LINK: dict[str, Any] = {
    "a link": {
        "value": {
            "user_id": "alice",
            "from_id": "8f14e45f-ceea-467f-a8c4-2b1c0d7d3a11",
            "rel": "fixes",
            "to_id": "45c48cce-2e2d-4fbd-aa1a-3c1e5b7c9d22",
        }
    }
}


@router.post("", responses=documented(403, 404, 409))
async def link_memories(
    services: TheServices, asking: TheAsking, new: Annotated[LinkBody, Body(openapi_examples=_LINK)]
) -> Linked:
    """Link two memories. Links of one relation form no cycle, and show only to those who may read both ends."""
    caller = await asking.as_app(new.user_id, new.app)
    [from_id] = await services.short_ids.resolved(caller, [new.from_id], "from_id")
    [to_id] = await services.short_ids.resolved(caller, [new.to_id], "to_id")
    return await services.links.link(caller, from_id, new.rel, to_id)


@router.get("", responses=documented(403, 404))
async def list_links(
    services: TheServices,
    asking: TheAsking,
    memory_id: Annotated[GivenId, Query(description="The memory whose links are listed.")],
    *,
    user_id: UserId = None,
    app: AskingApp = None,
) -> LinkList:
    """List the links of a memory, oldest first."""
    caller = await asking.as_owner_or_app(user_id, app)
    [memory] = await services.short_ids.resolved(caller, [memory_id], "memory_id")
    return await services.links.of(caller, memory)


@router.delete("", responses=documented(403, 404))
async def unlink_memories(
    services: TheServices,
    asking: TheAsking,
    from_id: GivenId,
    rel: str,
    to_id: GivenId,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
) -> LinkRemoved:
    """Remove a link."""
    caller = await asking.as_owner_or_app(user_id, app)
    [first] = await services.short_ids.resolved(caller, [from_id], "from_id")
    [second] = await services.short_ids.resolved(caller, [to_id], "to_id")
    await services.links.unlink(caller, first, rel, second)
    return LinkRemoved()

"""REST endpoints for the descriptions of categories and for category assignment."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from openmemory.categories.assignment import Waiting
from openmemory.categories.descriptions import MAX_DESCRIPTION_LENGTH, DescribedCategories, DescribedCategory
from openmemory.categories.preview import MAX_MEMORIES, Preview
from openmemory.rest.caller import BodyUser, Owner, TheAsking, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.schemas import Message

router = Router("/api/v1/categories", "memories")


class AssignCategories(BaseModel):
    """The user whose memories get categories."""

    user_id: BodyUser = None
    again: bool = Field(
        False,
        description="Also those that the service has looked at before; what a client has assigned stays as it is.",
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
                "all that no client has assigned": {"value": {"user_id": "alice", "again": True}},
            }
        ),
    ],
) -> Waiting:
    """Assigns categories to a user's memories in the background. The answer says how many are waiting.

    `GET` of the same path shows the progress.
    """
    caller = await asking.as_owner(wanted.user_id)
    return await services.categorization.request(caller, again=wanted.again)


@router.get("/assign", responses=documented(403, 404))
async def categories_waiting(services: TheServices, caller: Owner) -> Waiting:
    """Returns how many of a user's memories wait for category assignment."""
    return await services.categorization.waiting(caller)


@router.get("/assign/preview", responses=documented(403, 404))
async def preview_categories(
    services: TheServices,
    caller: Owner,
    again: Annotated[bool, Query(description="Also what the service has looked at before.")] = False,
    limit: Annotated[int, Query(ge=1, le=MAX_MEMORIES, description="Memories at most, the newest.")] = 100,
) -> Preview:
    """Returns the categories that the service would assign, and its confidence, without writing anything. Memories that
    would get no category are included."""
    return await services.categorization.preview(caller, again=again, limit=limit)


class Description(BaseModel):
    """The description of a category."""

    model_config = ConfigDict(extra="forbid")

    description: str = Field(
        min_length=1,
        max_length=MAX_DESCRIPTION_LENGTH,
        description="What memories of this category are about. An enumeration names words that speak for it; further"
        " lines may be sentences as such memories have them.",
    )


async def _named(
    request: Request,
    name: Annotated[str, Path(description="The category's name, percent-encoded.", examples=["beekeeping"])],
) -> str:
    """Returns the category name in a path. A trailing slash belongs to the path unless it is percent-encoded."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return name.removesuffix("/") if raw.endswith(b"/") else name


CategoryName = Annotated[str, Depends(_named)]


@router.get("", responses=documented(403, 404))
async def list_described_categories(services: TheServices, caller: Owner) -> DescribedCategories:
    """Lists the categories that the service assigns to a user's memories, and their descriptions: the user's own, and
    OpenMemory's twenty. `/api/v1/memories/categories` lists the assigned categories."""
    return await services.descriptions.list(caller)


@router.put("/{name:path}", responses=documented(403, 404, 409))
async def describe_category(
    services: TheServices,
    caller: Owner,
    name: CategoryName,
    wanted: Annotated[
        Description,
        Body(
            openapi_examples={
                "a category of one's own": {
                    "value": {"description": "Keeping bees: hives, honey, swarms, queens, what the bees need."}
                },
                "one of OpenMemory's in other words": {
                    "value": {"description": "My work as a baker: shifts, the oven, recipes of the bakery, my boss."}
                },
            }
        ),
    ],
) -> DescribedCategory:
    """Sets a user's description of a category. The service then assigns the category to memories that no client has
    categorized, and checks old memories again in the background. Nobody else reads the description, and it affects
    nobody else's memories.

    For one of OpenMemory's twenty, only the user's description counts. Sending the same description again changes
    nothing.
    """
    return await services.descriptions.describe(caller, name, wanted.description)


@router.delete("/{name:path}", responses=documented(403, 404))
async def forget_category(services: TheServices, caller: Owner, name: CategoryName) -> Message:
    """Removes a user's description of a category. Categories that clients assigned stay; those that the service
    assigned are checked again in the background. For one of OpenMemory's twenty, OpenMemory's description counts again.
    """
    await services.descriptions.forget(caller, name)
    return Message(message="Successfully removed the description of the category")

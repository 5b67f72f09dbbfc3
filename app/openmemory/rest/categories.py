"""Categories over REST: what the service files under, by whose words, and having it look at memories."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body, Depends, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field

from openmemory.categories.assignment import Waiting
from openmemory.categories.descriptions import LONGEST, DescribedCategories, DescribedCategory
from openmemory.categories.preview import MOST, Preview
from openmemory.memories import validation
from openmemory.rest.caller import OwnerOrDefault, TheAsking, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.schemas import Message

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
    validation.name(wanted.user_id, "user_id", services.settings.limits)
    caller = await asking.as_owner(wanted.user_id)
    return await services.filing.order(caller, again=wanted.again)


@router.get("/assign", responses=documented(403, 404))
async def categories_waiting(services: TheServices, caller: OwnerOrDefault) -> Waiting:
    """Tell how many of a user's memories wait for the service to look for their categories."""
    return await services.filing.waiting(caller)


@router.get("/assign/preview", responses=documented(403, 404))
async def preview_categories(
    services: TheServices,
    caller: OwnerOrDefault,
    again: Annotated[bool, Query(description="Also what the service has looked at before.")] = False,
    limit: Annotated[int, Query(ge=1, le=MOST, description="Memories at most, the newest.")] = 100,
) -> Preview:
    """Tell what the service would file where, and how sure it is, and write nothing; also where it assigns nothing."""
    return await services.filing.preview(caller, again=again, limit=limit)


class Description(BaseModel):
    """What a category is about."""

    model_config = ConfigDict(extra="forbid")

    description: str = Field(
        min_length=1,
        max_length=LONGEST,
        description="What memories of this category are about. An enumeration names words that speak for it; further"
        " lines may be sentences as such memories have them.",
    )


async def _named(
    request: Request,
    name: Annotated[str, Path(description="The category's name, percent-encoded.", examples=["beekeeping"])],
) -> str:
    """The name in a path. A slash at its end is the path's own, unless it is encoded."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    return name.removesuffix("/") if raw.endswith(b"/") else name


CategoryName = Annotated[str, Depends(_named)]


@router.get("", responses=documented(403, 404))
async def list_described_categories(services: TheServices, caller: OwnerOrDefault) -> DescribedCategories:
    """List what the service files a user's memories under, and by which descriptions: the user's own, and OpenMemory's
    twenty. What is filed under is listed by `/api/v1/memories/categories`.
    """
    return await services.descriptions.list(caller)


@router.put("/{name:path}", responses=documented(403, 404, 409))
async def describe_category(
    services: TheServices,
    caller: OwnerOrDefault,
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
    """Say what a category is about for a user. From then on the service files under it what no client has filed; it
    looks again at old memories, in the background. Nobody else reads the description, and nobody else is filed by it.

    One of OpenMemory's twenty is gone by the user's words alone. To say the same again changes nothing.
    """
    return await services.descriptions.describe(caller, name, wanted.description)


@router.delete("/{name:path}", responses=documented(403, 404))
async def forget_category(services: TheServices, caller: OwnerOrDefault, name: CategoryName) -> Message:
    """Take a user's description of a category away. What clients filed under it stays there; what the service filed is
    looked at again, in the background. One of OpenMemory's twenty is gone by OpenMemory's words again.
    """
    await services.descriptions.forget(caller, name)
    return Message(message="Successfully removed the description of the category")

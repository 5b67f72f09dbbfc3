"""Use cases of the descriptions of categories and of category assignment."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.categories.schemas import (
    MAX_DESCRIPTION_LENGTH,
    MAX_MEMORIES,
    DescribedCategories,
    DescribedCategory,
    Preview,
    Waiting,
)
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import Message

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "memories"
PATH = "/api/v1/categories"

Name = Annotated[str, Field(description="The name of the category.", examples=["beekeeping"])]


@operation(
    "POST", f"{PATH}/assign", command="categories assign", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409),
    status=202, body="AssignCategories",
    examples={
        "what waits": {"user_id": "alice"},
        "all that no client has assigned": {"user_id": "alice", "again": True},
    },
)  # fmt: skip
async def assign_categories(
    services: Services,
    caller: Caller,
    *,
    again: Annotated[
        bool,
        Field(
            description="Also those that the service has looked at before; what a client has assigned stays as it is."
        ),
    ] = False,
) -> Waiting:
    """Assign categories to a user's memories in the background.

    The answer says how many are waiting. `GET` of the same path shows the progress.
    """
    return await services.categorization.request(caller, again=again)


@operation("GET", f"{PATH}/assign", command="categories assign", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def categories_waiting(services: Services, caller: Caller) -> Waiting:
    """Count how many of a user's memories wait for category assignment."""
    return await services.categorization.waiting(caller)


@operation(
    "GET", f"{PATH}/assign/preview", command="categories assign", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404)
)
async def preview_categories(
    services: Services,
    caller: Caller,
    *,
    again: Annotated[bool, Field(description="Also what the service has looked at before.")] = False,
    limit: Annotated[int, Field(ge=1, le=MAX_MEMORIES, description="Memories at most, the newest.")] = 100,
) -> Preview:
    """Show the categories that the service would assign, and its confidence, without writing anything.

    Memories that would get no category are included.
    """
    return await services.categorization.preview(caller, again=again, limit=limit)


@operation("GET", PATH, command="categories list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_described_categories(services: Services, caller: Caller) -> DescribedCategories:
    """List the categories that the service assigns to a user's memories, with their descriptions.

    They are the user's own and OpenMemory's twenty. `/api/v1/memories/categories` lists the assigned categories.
    """
    return await services.descriptions.list(caller)


@operation(
    "PUT", f"{PATH}/{{name:path}}", command="categories describe", tag=TAG, speaker=Speaker.OWNER,
    errors=(403, 404, 409), body="Description", query=("user_id",),
    examples={
        "a category of one's own": {
            "description": "Keeping bees: hives, honey, swarms, queens, what the bees need.",
        },
        "one of OpenMemory's in other words": {
            "description": "My work as a baker: shifts, the oven, recipes of the bakery, my boss.",
        },
    },
)  # fmt: skip
async def describe_category(
    services: Services,
    caller: Caller,
    *,
    name: Name,
    description: Annotated[
        str,
        Field(
            min_length=1,
            max_length=MAX_DESCRIPTION_LENGTH,
            description="What memories of this category are about. An enumeration names words that speak for it;"
            " further lines may be sentences as such memories have them.",
        ),
    ],
) -> DescribedCategory:
    """Describe a category.

    The service then assigns the category to memories that no client has categorized, and checks old memories again in
    the background. Nobody else reads the description, and it affects nobody else's memories.

    For one of OpenMemory's twenty, only the user's description counts. Sending the same description again changes
    nothing.
    """
    return await services.descriptions.describe(caller, name, description)


@operation(
    "DELETE", f"{PATH}/{{name:path}}", command="categories forget", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404)
)
async def forget_category(services: Services, caller: Caller, *, name: Name) -> Message:
    """Delete the user's description of a category.

    Categories that clients assigned stay. Those that the service assigned are checked again in the background. For one
    of OpenMemory's twenty, OpenMemory's description counts again.
    """
    await services.descriptions.forget(caller, name)
    return Message(message="Successfully removed the description of the category")

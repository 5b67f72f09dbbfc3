"""Use cases of the apps of a user: what each wrote and read, and pausing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

from pydantic import Field

from openmemory.access.schemas import AppDetail, AppPage, AppSort, AppUpdated
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import PageNumber, PageSize, name_or_none
from openmemory.stats.schemas import AppAccesses, AppMemories

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "access"
PATH = "/api/v1/apps"

AppId = Annotated[UUID, Field(description="The app's id.")]


@operation("GET", PATH, command="apps list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_apps(
    services: Services,
    caller: Caller,
    *,
    name: Annotated[str | None, Field(description="A part of the name, in any case.")] = None,
    is_active: Annotated[bool | None, Field(description="Only paused apps (false), or only others (true).")] = None,
    sort_by: AppSort = "name",
    sort_direction: Literal["asc", "desc"] = "asc",
    activity: Annotated[bool, Field(description="With what each did in the last days, and when it last read.")] = False,
    page: PageNumber = 1,
    page_size: PageSize = 10,
) -> AppPage:
    """List a user's apps with the number of memories they wrote and read."""
    return await services.apps.list(
        caller,
        name=name_or_none(services, name or None, "name"),
        is_active=is_active,
        sort=sort_by,
        descending=sort_direction == "desc",
        activity=activity,
        page=page,
        page_size=page_size,
    )


@operation("GET", f"{PATH}/{{app_id}}", tag=TAG, speaker=Speaker.OWNER, owned="app", errors=(403, 404))
async def get_app(services: Services, caller: Caller, *, app_id: AppId) -> AppDetail:
    """Show how much one app wrote and read, and when. Deleted memories and every access are counted."""
    return await services.apps.get(caller, app_id)


@operation("GET", f"{PATH}/{{app_id}}/memories", tag=TAG, speaker=Speaker.OWNER, owned="app", errors=(403, 404))
async def list_app_memories(
    services: Services, caller: Caller, *, app_id: AppId, page: PageNumber = 1, page_size: PageSize = 10
) -> AppMemories:
    """List the memories that one app wrote and that are not deleted, newest first. Times are UTC without an offset."""
    return await services.stats.app_memories(caller, app_id, page=page, page_size=page_size)


@operation("GET", f"{PATH}/{{app_id}}/accessed", tag=TAG, speaker=Speaker.OWNER, owned="app", errors=(403, 404))
async def list_accessed(
    services: Services, caller: Caller, *, app_id: AppId, page: PageNumber = 1, page_size: PageSize = 10
) -> AppAccesses:
    """List the memories that one app accessed, in any state, most often first. Times are UTC without an offset."""
    return await services.stats.app_accessed(caller, app_id, page=page, page_size=page_size)


@operation(
    "PUT", f"{PATH}/{{app_id}}", command="apps pause", tag=TAG, speaker=Speaker.OWNER, owned="app", errors=(403, 404),
    query=("is_active", "user_id"),
)  # fmt: skip
async def update_app(services: Services, caller: Caller, *, app_id: AppId, is_active: bool) -> AppUpdated:
    """Pause an app (`is_active=false`) or resume it. A paused app neither reads nor writes."""
    await services.apps.set_active(caller, app_id, is_active)
    return AppUpdated()

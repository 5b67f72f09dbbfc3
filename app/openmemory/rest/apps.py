"""REST endpoints that list apps, show what they wrote and read, and pause them."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel

from openmemory.access.apps import AppDetail, AppPage, AppSort
from openmemory.memories import validation
from openmemory.rest.caller import AppId, Owner, OwnerOfApp, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.stats.schemas import AppAccesses, AppMemories

router = Router("/api/v1/apps", "access")

PageNumber = Annotated[int, Query(ge=1, le=1_000_000)]
PageSize = Annotated[int, Query(ge=1, le=100)]


class AppUpdated(BaseModel):
    """The result, in the words of OpenMemory."""

    status: Literal["success"] = "success"
    message: str = "Updated app details successfully"


@router.get("", responses=documented(403, 404))
async def list_apps(
    *,
    services: TheServices,
    caller: Owner,
    name: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
    is_active: Annotated[bool | None, Query(description="Only paused apps (false), or only others (true).")] = None,
    sort_by: AppSort = "name",
    sort_direction: Literal["asc", "desc"] = "asc",
    activity: Annotated[bool, Query(description="With what each did in the last days, and when it last read.")] = False,
    page: PageNumber = 1,
    page_size: PageSize = 10,
) -> AppPage:
    """Lists a user's apps with the number of memories they wrote and read."""
    if name:
        name = validation.name(name, "name", services.settings.limits)
    return await services.apps.list(
        caller,
        name=name,
        is_active=is_active,
        sort=sort_by,
        descending=sort_direction == "desc",
        activity=activity,
        page=page,
        page_size=page_size,
    )


@router.get("/{app_id}", responses=documented(403, 404))
async def get_app(services: TheServices, caller: OwnerOfApp, app_id: AppId) -> AppDetail:
    """Shows how much one app wrote and read, and when. Deleted memories and every access are counted."""
    return await services.apps.get(caller, app_id)


@router.get("/{app_id}/memories", responses=documented(403, 404))
async def list_app_memories(
    services: TheServices, caller: OwnerOfApp, app_id: AppId, page: PageNumber = 1, page_size: PageSize = 10
) -> AppMemories:
    """Lists the memories that one app wrote and that are not deleted, newest first. Times are UTC without an offset."""
    return await services.stats.app_memories(caller, app_id, page=page, page_size=page_size)


@router.get("/{app_id}/accessed", responses=documented(403, 404))
async def list_accessed(
    services: TheServices, caller: OwnerOfApp, app_id: AppId, page: PageNumber = 1, page_size: PageSize = 10
) -> AppAccesses:
    """Lists the memories that one app accessed, in any state, most often first. Times are UTC without an offset."""
    return await services.stats.app_accessed(caller, app_id, page=page, page_size=page_size)


@router.put("/{app_id}", responses=documented(403, 404))
async def update_app(services: TheServices, caller: OwnerOfApp, app_id: AppId, is_active: bool) -> AppUpdated:
    """Pauses an app (`is_active=false`) or resumes it. A paused app neither reads nor writes."""
    await services.apps.set_active(caller, app_id, is_active)
    return AppUpdated()

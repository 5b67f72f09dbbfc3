"""Apps over REST: which there are, and pausing them."""

from __future__ import annotations

from typing import Annotated, Literal
from uuid import UUID

from fastapi import Query
from pydantic import BaseModel

from app.access.apps import AppPage, AppSort
from app.memories import checks
from app.rest.caller import OwnerOrDefault, TheServices
from app.rest.errors import documented
from app.rest.routing import Router

router = Router("/api/v1/apps", "access")


class AppUpdated(BaseModel):
    """What was done, as OpenMemory says it."""

    status: Literal["success"] = "success"
    message: str = "Updated app details successfully"


@router.get("", responses=documented(403, 404))
async def list_apps(
    *,
    services: TheServices,
    caller: OwnerOrDefault,
    name: Annotated[str | None, Query(description="A part of the name, in any case.")] = None,
    is_active: Annotated[bool | None, Query(description="Only paused apps (false), or only others (true).")] = None,
    sort_by: AppSort = "name",
    sort_direction: Literal["asc", "desc"] = "asc",
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    page_size: Annotated[int, Query(ge=1, le=100)] = 10,
) -> AppPage:
    """List a user's apps with how much they wrote and read."""
    if name:
        checks.name(name, "name", services.settings.limits)
    return await services.apps.list(
        caller,
        name=name,
        is_active=is_active,
        sort=sort_by,
        descending=sort_direction == "desc",
        page=page,
        page_size=page_size,
    )


@router.put("/{app_id}", responses=documented(403, 404))
async def update_app(services: TheServices, caller: OwnerOrDefault, app_id: UUID, is_active: bool) -> AppUpdated:
    """Pause an app (`is_active=false`), or let it go on. A paused app neither reads nor writes."""
    await services.apps.set_active(caller, app_id, is_active)
    return AppUpdated()

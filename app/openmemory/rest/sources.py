"""The REST endpoint that lists conversations, sessions, files and documents together."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query

from openmemory.rest.caller import AskingApp, Namespaces, TheAsking, TheServices, UserId
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.sources.schemas import SourceType, StoredSourcePage

router = Router("/api/v1/sources", "sources")


@router.get("", responses=documented(403, 404))
async def list_sources(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Namespaces = (),
    kind: Annotated[list[SourceType] | None, Query(description="Only these kinds; may be repeated.")] = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=100)] = 50,
) -> StoredSourcePage:
    """List everything that a user's apps have said and read, the last changed first."""
    caller = await asking.as_reader(user_id, app)
    return await services.sources.list(caller, types=kind or (), namespaces=namespace, page=page, size=size)

"""REST endpoints that tell a client as whom it asks, and that save the user's time zone."""

from __future__ import annotations

from typing import Annotated

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field

from openmemory.access.directory import Me, UserTimezone
from openmemory.doors.rest.http.caller import BodyUser, Owner, TheAsking, ThePrincipal, TheServices
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.http.zones import InTimezone

router = Router("/api/v1/me", "access")


class TimezoneBody(BaseModel):
    """The time zone to save."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    timezone: str | None = Field(description="IANA name of the time zone; null: none is saved any more.")


_ZONE = {"Berlin": {"value": {"user_id": "alice", "timezone": "Europe/Berlin"}}}


@router.get("", responses=documented(403))
async def get_me(services: TheServices, principal: ThePrincipal) -> Me:
    """Shows as whom you ask: the user that is meant where a request names none, and what your credential allows."""
    return services.directory.me(principal)


@router.get("/timezone", responses=documented(403, 404), dependencies=[InTimezone])
async def get_timezone(services: TheServices, caller: Owner) -> UserTimezone:
    """Shows the time zone in which dates and words such as `today` are meant, and who names it."""
    return await services.directory.timezone(caller)


@router.put("/timezone", responses=documented(403, 404))
async def save_timezone(
    services: TheServices,
    asking: TheAsking,
    wanted: Annotated[TimezoneBody, Body(openapi_examples=_ZONE)],
) -> UserTimezone:
    """Saves the time zone of a user, for requests that name none."""
    caller = await asking.as_owner(wanted.user_id)
    return await services.directory.save_timezone(caller, wanted.timezone)

"""Use cases of a client that asks as whom it asks, and of the user's time zone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.access.directory import Me, UserTimezone
from openmemory.operations.description import Speaker, operation

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.identity.principal import Principal
    from openmemory.services import Services

TAG = "access"
PATH = "/api/v1/me"


@operation("GET", PATH, tag=TAG, speaker=Speaker.CREDENTIAL, errors=(403,))
async def get_me(services: Services, principal: Principal) -> Me:
    """Shows as whom you ask: the user that is meant where a request names none, and what your credential allows."""
    return services.directory.me(principal)


@operation(
    "GET", f"{PATH}/timezone", command="timezone", tag=TAG, speaker=Speaker.EXISTING_OWNER, in_timezone=True,
    errors=(403, 404),
)  # fmt: skip
async def get_timezone(services: Services, caller: Caller) -> UserTimezone:
    """Shows the time zone in which dates and words such as `today` are meant, and who names it."""
    return await services.directory.timezone(caller)


@operation(
    "PUT", f"{PATH}/timezone", command="timezone", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404),
    body="TimezoneBody", examples={"Berlin": {"user_id": "alice", "timezone": "Europe/Berlin"}},
)  # fmt: skip
async def save_timezone(
    services: Services,
    caller: Caller,
    *,
    timezone: Annotated[str | None, Field(description="IANA name of the time zone; null: none is saved any more.")],
) -> UserTimezone:
    """Saves the time zone of a user, for requests that name none."""
    return await services.directory.save_timezone(caller, timezone)

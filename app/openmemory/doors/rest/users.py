"""Users over REST."""

from __future__ import annotations

from typing import Annotated

from fastapi import Path, Query

from openmemory.doors.rest.http.caller import TheAsking, TheServices
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.errors import Invalid
from openmemory.operations.parameters import Message

router = Router("/api/v1/users", "access")


@router.delete("/{user_id:path}", responses=documented(403, 404))
async def erase_user(
    services: TheServices,
    asking: TheAsking,
    user_id: Annotated[str, Path(description="The user's name.", examples=["alice"])],
    confirm: Annotated[str, Query(description="The user's name once more.", examples=["alice"])] = "",
) -> Message:
    """Remove a user for good, with all memories, apps, rules, logs and vectors."""
    if user_id.endswith("/") and confirm != user_id:
        user_id = user_id.removesuffix("/")
    if confirm != user_id:
        raise Invalid("confirm", "must repeat the user's name, because this cannot be undone")
    caller = await asking.as_owner(user_id)
    count = await services.memories.erase_user(caller)
    return Message(message=f"Successfully erased the user and {count} memories")

"""REST endpoint for the statistics of a user."""

from __future__ import annotations

from openmemory.rest.caller import Reader, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.stats.schemas import Profile

router = Router("/api/v1/stats", "memories")


@router.get("", responses=documented(403, 404))
async def get_stats(services: TheServices, caller: Reader) -> Profile:
    """Count a user's memories, and show all of their apps. Times are UTC without an offset."""
    return await services.stats.profile(caller)

"""REST endpoint that tells a client as whom it asks."""

from __future__ import annotations

from openmemory.access.directory import Me
from openmemory.rest.caller import ThePrincipal, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router

router = Router("/api/v1/me", "access")


@router.get("", responses=documented(403))
async def get_me(services: TheServices, principal: ThePrincipal) -> Me:
    """Shows as whom you ask: the user that is meant where a request names none, and what your credential allows."""
    return services.directory.me(principal)

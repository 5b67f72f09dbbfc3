"""REST endpoints for the index sync, the installation that owns the index, and the diagnosis."""

from __future__ import annotations

from typing import Annotated, Literal

from fastapi import Body, Query
from pydantic import BaseModel, Field

from openmemory.doors.rest.http.caller import TheAsking, ThePrincipal, TheServices
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.health.service import Diagnosis
from openmemory.index.installation import InstallationAnswer
from openmemory.index.sync.service import SyncAnswer, SyncRuns

router = Router("/api/v1", "operation")
short = Router("", "operation")


@router.post("/sync", responses=documented(403, 404, 409))
@short.post("/sync", responses=documented(403, 404, 409), include_in_schema=False)
async def sync(
    services: TheServices,
    asking: TheAsking,
    dry_run: Annotated[bool, Query(description="Only count the differences.")] = False,
    full: Annotated[bool, Query(description="Write every item again.")] = False,
    user_id: Annotated[str | None, Query(description="Only the memories of this user; left out: of all users.")] = None,
) -> SyncAnswer:
    """Make the vector index equal to PostgreSQL. `partial`: some items could not be delivered; they are retried."""
    who = asking.principal if user_id is None else await asking.as_owner(user_id)
    return await services.index_sync.run(who, trigger="rest", dry_run=dry_run, full=full)


@router.get("/sync/runs", responses=documented(403))
async def runs(
    services: TheServices,
    principal: ThePrincipal,
    limit: Annotated[int, Query(ge=1, le=1000, description="The maximum number of runs.")] = 20,
) -> SyncRuns:
    """List the last runs of the sync with their results, and the progress of a running one."""
    return await services.index_sync.runs(principal, limit)


_DECISIONS = {
    "copied": {"value": {"decision": "copied"}},
    "moved": {"value": {"decision": "moved"}},
}


class DatabaseBody(BaseModel):
    """The answer to the question that a copied database raises."""

    decision: Literal["copied", "moved"] = Field(
        description=(
            "copied: the other database is still used, and this one becomes an installation of its own. moved: this one"
            " takes its place."
        )
    )


@router.get("/installation", responses=documented(403))
async def show_installation(services: TheServices, principal: ThePrincipal) -> InstallationAnswer:
    """Show the id of this installation, and whether the index is its own."""
    return await services.installations.show(principal)


@router.post("/installation", responses=documented(403, 409))
async def decide_installation(
    services: TheServices, principal: ThePrincipal, body: Annotated[DatabaseBody, Body(openapi_examples=_DECISIONS)]
) -> InstallationAnswer:
    """Say whether this database was copied or moved, if another copy of it uses its collections.

    Needs the scope `admin`.
    """
    return await services.installations.decide(principal, body.decision)


@router.get("/doctor", responses=documented(403))
async def doctor(services: TheServices, principal: ThePrincipal) -> Diagnosis:
    """Check every dependency, and count the differences between PostgreSQL and the index."""
    principal.must_operate()
    return await services.health.diagnose()

"""REST endpoints for the index sync and the diagnosis."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from fastapi import Query
from pydantic import BaseModel

from openmemory.audit import audit_log
from openmemory.audit.audit_log import AuditAction
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import ConflictError, Unavailable
from openmemory.health.service import Diagnosis
from openmemory.identity.principal import Scope
from openmemory.index.sync.reconcile import IndexUnavailable, SyncRunning, SyncStatistics
from openmemory.index.sync.runs import Run
from openmemory.rest.caller import TheAsking, ThePrincipal, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router

router = Router("/api/v1", "operation")
short = Router("", "operation")


class SyncAnswer(BaseModel):
    """The result of a sync."""

    status: Literal["success", "partial"]
    statistics: SyncStatistics


class SyncRuns(BaseModel):
    """The newest runs, newest first. They are kept for 30 days."""

    runs: list[Run]


@router.post("/sync", responses=documented(403, 404, 409))
@short.post("/sync", responses=documented(403, 404, 409), include_in_schema=False)
async def sync(
    services: TheServices,
    asking: TheAsking,
    dry_run: Annotated[bool, Query(description="Only count what would be done.")] = False,
    full: Annotated[bool, Query(description="Write every item anew.")] = False,
    user_id: Annotated[str | None, Query(description="Only this user's; left out: everybody's.")] = None,
) -> SyncAnswer:
    """Make the vector index equal to PostgreSQL. `partial`: some items could not be delivered and stay marked."""
    user = None if user_id is None else await asking.as_owner(user_id)
    if user is None:
        asking.principal.must(Scope.ADMIN)
    else:
        user.may_write()
        if full:
            user.must_be_owner("have all of their memories embedded anew")
    who = user or asking.principal
    async with services.database.statement() as tx:
        await audit_log.record(tx, who, AuditAction.INDEX_SYNC, detail={"dry_run": dry_run, "full": full})
    with _in_words():
        statistics = await services.reconciler.sync(
            trigger="rest", user=None if user is None else user.user_id, dry_run=dry_run, full=full
        )
    return SyncAnswer(status="partial" if statistics.errors else "success", statistics=statistics)


@router.get("/sync/runs", responses=documented(403))
async def runs(
    services: TheServices,
    principal: ThePrincipal,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many runs at most.")] = 20,
) -> SyncRuns:
    """List what the last runs of the sync found and did, and how far one has come that goes on."""
    principal.must_operate()
    return SyncRuns(runs=await services.reconciler.runs(limit))


@router.get("/doctor", responses=documented(403))
async def doctor(services: TheServices, principal: ThePrincipal) -> Diagnosis:
    """Look at every dependency, and at how far PostgreSQL and the index are apart."""
    principal.must_operate()
    with _in_words():
        return await services.health.diagnose()


@contextmanager
def _in_words() -> Iterator[None]:
    try:
        yield
    except SyncRunning as error:
        raise ConflictError(str(error), code="sync_running", hint="Wait for it to end.") from error
    except IndexUnavailable as error:
        raise Unavailable(f"The vector index does not answer: {error}", code="index_unavailable") from error
    except EmbedderUnavailable as error:
        raise Unavailable(f"The embedder does not answer: {error}", code="embedder_unavailable") from error

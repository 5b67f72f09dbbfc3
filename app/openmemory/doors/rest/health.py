"""REST endpoints that report if the service is alive and if it can answer requests."""

from __future__ import annotations

from typing import Literal

from fastapi import Request, Response
from pydantic import BaseModel

from openmemory.doors.rest.http.caller import TheServices
from openmemory.doors.rest.http.routing import Router
from openmemory.health.service import Passed, Readiness, ReadinessSummary
from openmemory.identity.request import request_context_of
from openmemory.services import VERSION

router = Router("/health", "operation")


class Alive(BaseModel):
    """The service runs."""

    status: Literal["healthy"] = "healthy"
    service: Literal["openmemory"] = "openmemory"


class Greeting(Alive):
    """The service at this address."""

    version: str = VERSION
    documentation: str = "/docs"


@router.get("")
async def health() -> Alive:
    """Say that the service runs."""
    return Alive()


@router.get("/live")
async def live() -> Alive:
    """Say that the process runs, whatever it depends on. Needs no key."""
    return Alive()


@router.get(
    "/ready",
    responses={
        503: {
            "model": Readiness | ReadinessSummary,
            "description": "PostgreSQL is away or cannot be written: no request can be answered.",
        }
    },
)
async def ready(services: TheServices, request: Request, response: Response) -> Readiness | ReadinessSummary:
    """Say whether requests can be answered: `degraded` when only by text search. Needs no key; versions, the model and
    errors are for whoever may see the service as a whole."""
    readiness = await services.health.ready()
    if readiness.status == "down":
        response.status_code = 503
        response.headers["Retry-After"] = "1"
    principal = request_context_of(request.scope).principal
    if principal is not None and principal.operates:
        return readiness
    checks = {name: Passed(ok=check.ok) for name, check in readiness.checks.items()}
    return ReadinessSummary(status=readiness.status, checks=checks)


async def root(request: Request) -> Response:
    """Leads a browser to the page; describes the service to everything else."""
    if "text/html" in request.headers.get("accept", ""):
        return Response(status_code=307, headers={"Location": "ui/", "Vary": "Accept"})
    return Response(Greeting().model_dump_json(), media_type="application/json", headers={"Vary": "Accept"})

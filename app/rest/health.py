"""Whether the service lives, and whether it can answer."""

from __future__ import annotations

from typing import Literal

from fastapi import Response
from pydantic import BaseModel

from app.health import Readiness
from app.rest.caller import TheServices
from app.rest.routing import Router
from app.services import VERSION

router = Router("/health", "operation")


class Alive(BaseModel):
    """The service runs."""

    status: Literal["healthy"] = "healthy"
    service: Literal["openmemory"] = "openmemory"


class Greeting(Alive):
    """What this address is."""

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
    "/ready", responses={503: {"model": Readiness, "description": "PostgreSQL is away: no request can be answered."}}
)
async def ready(services: TheServices, response: Response) -> Readiness:
    """Say whether requests can be answered: `degraded` when only by text search. Needs no key."""
    readiness = await services.health.ready()
    if readiness.status == "down":
        response.status_code = 503
        response.headers["Retry-After"] = "1"
    return readiness


async def root() -> Greeting:
    """Say what answers here."""
    return Greeting()

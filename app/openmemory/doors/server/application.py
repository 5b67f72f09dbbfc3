"""The web application: REST and MCP under one lifespan."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI

from openmemory.access.authentication import Authenticator
from openmemory.doors.mcp.transport.endpoints import McpDoors, McpFirst
from openmemory.doors.rest.api import include_rest
from openmemory.doors.rest.http.guard import Guard
from openmemory.doors.rest.http.head import HeadAsGet
from openmemory.doors.rest.http.measure import Measure
from openmemory.doors.web.pages import include_web
from openmemory.doors.web.refusals import Refusals
from openmemory.jobs.schedule import scheduled
from openmemory.services import VERSION, Services
from openmemory.telemetry.exposition import Metrics


def create_app(services: Services) -> FastAPI:
    """Returns the application with all endpoints over one set of services. The caller opens and closes the services."""
    metrics = Metrics(services)
    authenticator = Authenticator(
        services.settings,
        services.database,
        services.keys,
        services.browser_sessions,
        services.rates,
        tokens=services.tokens,
        local_key=services.stores.local_key,
    )
    doors = McpDoors(services, authenticator, metrics.traffic)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        async with doors.running(), scheduled(services):
            yield

    app = FastAPI(
        title="OpenMemory API",
        version=VERSION,
        description="One memory for all your AI assistants.",
        lifespan=lifespan,
        redirect_slashes=False,
        docs_url=None,  # their pages load scripts from other machines
        redoc_url=None,
    )
    app.state.services = services
    app.state.metrics = metrics
    include_rest(app)
    include_web(app, authenticator)
    app.add_middleware(McpFirst, doors=doors)
    app.add_middleware(Guard, settings=services.settings, authenticator=authenticator, rates=services.rates)
    app.add_middleware(Refusals)
    app.add_middleware(Measure, traffic=metrics.traffic)
    app.add_middleware(HeadAsGet)
    return app

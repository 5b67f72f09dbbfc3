"""The endpoint for Prometheus."""

from __future__ import annotations

from fastapi import Request, Response

from openmemory.doors.rest.http.caller import ThePrincipal
from openmemory.doors.rest.http.routing import Router
from openmemory.telemetry.exposition import CONTENT_TYPE, Metrics

router = Router("/metrics", "operation")

_SHAPE = {
    "content": {CONTENT_TYPE: {"schema": {"type": "string"}, "example": 'openmemory_up{dependency="postgres"} 1'}}
}


@router.get("", response_class=Response, responses={200: _SHAPE | {"description": "The metrics, one sample a line."}})
async def metrics(request: Request, principal: ThePrincipal) -> Response:
    """Count and measure the service in the text format of Prometheus. Answers while PostgreSQL is away, and says so."""
    principal.must_operate()
    registry: Metrics = request.app.state.metrics
    return Response(await registry.exposition(), media_type=CONTENT_TYPE)

"""REST endpoints that show and undo captures: texts that a language model was asked about."""

from __future__ import annotations

from datetime import date
from typing import Annotated

from fastapi import Query

from openmemory.capture.models import Status
from openmemory.capture.schemas import CapturePage, CaptureView, Usage
from openmemory.rest.caller import CaptureId, OwnerOfCapture, Reader, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router

router = Router("/api/v1/captures", "memories")


@router.get("", responses=documented(403, 404))
async def list_captures(
    services: TheServices,
    caller: Reader,
    status: Annotated[list[Status] | None, Query(description="Only these; may be given several times.")] = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=100)] = 20,
) -> CapturePage:
    """Lists captures and their outcome, newest first. An app sees its own captures."""
    return await services.captures.list(caller, statuses=status or (), page=page, size=size)


@router.get("/usage", responses=documented(403, 404))
async def get_usage(
    services: TheServices,
    caller: Reader,
    first: Annotated[
        date | None, Query(alias="from", description="The first day, in UTC; left out: 30 days with the last.")
    ] = None,
    last: Annotated[date | None, Query(alias="to", description="The last day, in UTC; left out: today.")] = None,
) -> Usage:
    """Returns the language model usage of captures by day and app, including failed attempts, for at most 366 days. It
    stays when captures are removed. An app sees its own usage."""
    return await services.captures.usage(caller, first=first, last=last)


@router.get("/{capture_id}", responses=documented(403, 404))
async def get_capture(services: TheServices, caller: OwnerOfCapture, capture_id: CaptureId) -> CaptureView:
    """Shows one capture: its status, what was done and what was not, and its language model usage."""
    return await services.captures.get(caller, capture_id)


@router.post("/{capture_id}/undo", responses=documented(403, 404, 409))
async def undo_capture(services: TheServices, caller: OwnerOfCapture, capture_id: CaptureId) -> CaptureView:
    """Undoes a capture as one step: added memories are deleted; changed, superseded or deleted memories are as they
    were before. A pending capture is cancelled. All or nothing: if a memory was changed since, nothing is undone (409).
    """
    return await services.captures.undo(caller, capture_id)

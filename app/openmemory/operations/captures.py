"""Use cases of captures: texts that a language model was asked about."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Annotated
from uuid import UUID

from pydantic import Field

from openmemory.capture.schemas import CapturePage, CaptureView, Usage
from openmemory.capture.status import Status
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import PageNumber, PageSize

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "memories"
PATH = "/api/v1/captures"
ONE = f"{PATH}/{{capture_id}}"

CaptureId = Annotated[UUID, Field(description="The capture's id.")]


@operation("GET", PATH, command="captures list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_captures(
    services: Services,
    caller: Caller,
    *,
    status: Annotated[list[Status] | None, Field(description="Only these.")] = None,
    page: PageNumber = 1,
    size: PageSize = 20,
) -> CapturePage:
    """List captures and their outcome, newest first. An app sees its own captures."""
    return await services.captures.list(caller, statuses=status or (), page=page, size=size)


@operation("GET", f"{PATH}/usage", command="usage", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def get_usage(
    services: Services,
    caller: Caller,
    *,
    first: Annotated[
        date | None, Field(alias="from", description="The first day, in UTC; left out: 30 days with the last.")
    ] = None,
    last: Annotated[date | None, Field(alias="to", description="The last day, in UTC; left out: today.")] = None,
) -> Usage:
    """Show the language model usage of captures by day and app, including failed attempts, for at most 366 days.

    It stays when captures are removed. An app sees its own usage.
    """
    return await services.captures.usage(caller, first=first, last=last)


@operation("GET", ONE, command="captures show", tag=TAG, speaker=Speaker.OWNER, owned="capture", errors=(403, 404))
async def get_capture(services: Services, caller: Caller, *, capture_id: CaptureId) -> CaptureView:
    """Show one capture: its status, what was done and what was not, and its language model usage."""
    return await services.captures.get(caller, capture_id)


@operation(
    "POST", f"{ONE}/undo", command="captures undo", tag=TAG, speaker=Speaker.OWNER, owned="capture",
    errors=(403, 404, 409), query=("user_id",),
)  # fmt: skip
async def undo_capture(services: Services, caller: Caller, *, capture_id: CaptureId) -> CaptureView:
    """Undo a capture as one step, or cancel one that waits.

    Added memories are deleted; changed, superseded or deleted memories are as they were before. All or nothing: if a
    memory was changed since, nothing is undone (409).
    """
    return await services.captures.undo(caller, capture_id)

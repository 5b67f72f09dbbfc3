"""REST endpoint of the brief that assistants get when a session starts."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field

from openmemory.doors.rest.http.caller import BodyUser, TheAsking, TheServices
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.http.zones import BodyTimezone, InTimezone
from openmemory.projects.states import summary
from openmemory.search.brief import BUDGET, MAX_BUDGET, MIN_BUDGET, Brief, BriefQuery

router = Router("/api/v1/brief", "search")


class BriefBody(BaseModel):
    """A request for a brief."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(None, description="The app that reads; left out: the credential's, or the default app.")
    namespace: str | None = Field(None, description="The project. Memories of the default namespace come as well.")
    budget: int = Field(BUDGET, ge=MIN_BUDGET, le=MAX_BUDGET, description="The largest size in tokens.")
    query: str | None = Field(None, description="A prompt: only memories that fit it; left out: the most telling ones.")
    head: str | None = Field(
        None,
        description="The commit that is checked out: memories of commits that are not in its history are left out. Left"
        " out: the one with which the project is registered.",
    )
    timezone: BodyTimezone = None
    min_score: float = Field(0.5, ge=0, le=1, description="With a query: only memories of at least this score.")


@router.post("", responses=documented(403, 404, 413), dependencies=[InTimezone])
async def brief(
    services: TheServices,
    asking: TheAsking,
    wanted: Annotated[
        BriefBody,
        Body(openapi_examples={"a project": {"value": {"user_id": "alice", "app": "claude", "namespace": "webshop"}}}),
    ],
) -> Brief:
    """Write a brief for an assistant: a line for each of the most telling memories, within a budget of tokens.

    Without a query, it begins with the state of the project, in short.
    """
    caller = (await asking.as_app(wanted.user_id, wanted.app)).in_timezone(wanted.timezone)
    lead, orphans = "", frozenset[UUID]()
    if wanted.namespace is not None:
        orphans = await services.anchors.orphans(caller, wanted.namespace, wanted.head)
    if wanted.query is None and wanted.namespace is not None:
        lead = await summary(await services.states.find(caller, wanted.namespace), wanted.budget // 4)
    query = BriefQuery(wanted.namespace, wanted.budget, wanted.query, wanted.min_score, lead, orphans)
    return await services.briefs.brief(caller, query)

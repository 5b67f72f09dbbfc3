"""The REST endpoint of context packs: what an assistant should know now, within a budget of tokens."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.doors.rest.http.caller import AskingApp, BodyUser, GivenId, TheAsking, TheServices, UserId
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.http.zones import BodyTimezone, InTimezone
from openmemory.projects.context import BUDGET, MAX_BUDGET, ContextQuery
from openmemory.projects.pack_schemas import ContextPack
from openmemory.projects.schemas import ReadReport
from openmemory.projects.usage import MAX_DAYS

router = Router("/api/v1/context", "projects")


class ContextBody(BaseModel):
    """A request for a pack."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(None, description="The app that reads; left out: the credential's, or the default app.")
    namespace: str = Field("default", description="The project. Memories of the default namespace come as well.")
    query: str | None = Field(None, description="The question or the task.", examples=["why do we retry?"])
    about: GivenId | None = Field(
        None,
        description="A memory to start from, with or without a question: its links, its neighbours in the "
        "thread, and what shares its tags or entities come too.",
    )
    budget: int = Field(BUDGET, ge=0, le=MAX_BUDGET, description="The largest size of the text in tokens.")
    detail: Literal["full", "index"] = Field("full", description="index: a line of each item, to read by its id.")
    clusters: bool = Field(True, description="Memories that say the same are shown once.")
    head: str | None = Field(
        None, description="The commit that is checked out; left out: the one with which the project is registered."
    )
    include_orphans: bool = Field(
        False, description="Memories whose `metadata.commit` is not in the history of `head` come too."
    )
    timezone: BodyTimezone = None
    explain: bool = Field(False, description="Say of each item why it is in the pack or not (`decisions`).")


_PACK: dict[str, Any] = {
    "a task": {
        "value": {
            "user_id": "alice",
            "app": "claude",
            "namespace": "acme/shop",
            "query": "why do we retry after a restart?",
            "budget": 2500,
        }
    }
}


@router.post("", responses=documented(403, 404, 413), dependencies=[InTimezone])
async def context(
    services: TheServices, asking: TheAsking, wanted: Annotated[ContextBody, Body(openapi_examples=_PACK)]
) -> ContextPack:
    """Pack what an assistant should know for a task: the state of the project, and memories, links and passages.

    `text` is for the assistant and has at most `budget` tokens. The state wins over memories. `conflicts` names sides
    that exclude each other, the newer one first, and an older side is never there alone. `dropped` names what was left
    out. The same rows give the same bytes.
    """
    caller = (await asking.as_app(wanted.user_id, wanted.app)).in_timezone(wanted.timezone)
    about = None
    if wanted.about is not None:
        [about] = await services.short_ids.resolved(caller, [wanted.about], "about")
    query = ContextQuery(
        wanted.query, wanted.namespace, wanted.budget, about, wanted.detail, wanted.clusters, wanted.explain,
        wanted.head, wanted.include_orphans,
    )  # fmt: skip
    return await services.context.pack(caller, query)


@router.get("/usage", responses=documented(403, 404))
async def context_usage(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Annotated[str | None, Query(description="Only this project.")] = None,
    days: Annotated[int, Query(ge=1, le=MAX_DAYS, description="The last days, today included.")] = 30,
) -> ReadReport:
    """Count the tokens that packs gave, and how many fewer these are than the full texts. No query is kept."""
    caller = await asking.as_reader(user_id, app)
    return await services.reads.report(caller, namespace=namespace, days=days)

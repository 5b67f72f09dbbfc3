"""Use cases of what an assistant should know now: context packs, what they cost, and the brief of a new session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal
from uuid import UUID

from pydantic import Field

from openmemory.operations.description import MemoryReference, Speaker, operation
from openmemory.operations.parameters import Timezone
from openmemory.projects.context import BUDGET, MAX_BUDGET, ContextQuery
from openmemory.projects.pack_schemas import ContextPack
from openmemory.projects.schemas import ReadReport
from openmemory.projects.states import summary
from openmemory.projects.usage import MAX_DAYS
from openmemory.search import brief as briefs
from openmemory.search.brief import Brief, BriefQuery

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "projects"
PATH = "/api/v1/context"


@operation(
    "POST", PATH, command="context", tool="mem_get_context", tag=TAG, speaker=Speaker.APP, in_timezone=True,
    errors=(403, 404, 413), body="ContextBody", examples={
        "a task": {
            "user_id": "alice", "app": "claude", "namespace": "acme/shop", "query": "why do we retry after a restart?",
            "budget": 2500,
        }
    },
)  # fmt: skip
async def context(
    services: Services,
    caller: Caller,
    *,
    namespace: Annotated[
        str, Field(description="The project. Memories of the default namespace come as well.")
    ] = "default",
    query: Annotated[str | None, Field(description="The question or the task.", examples=["why do we retry?"])] = None,
    about: Annotated[
        UUID | None,
        MemoryReference(),
        Field(
            description="A memory to start from, with or without a question: its links, its neighbours in the thread,"
            " and what shares its tags or entities come too."
        ),
    ] = None,
    budget: Annotated[int, Field(ge=0, le=MAX_BUDGET, description="The largest size of the text in tokens.")] = BUDGET,
    detail: Annotated[
        Literal["full", "index"], Field(description="index: a line of each item, to read by its id.")
    ] = "full",
    clusters: Annotated[bool, Field(description="Memories that say the same are shown once.")] = True,
    head: Annotated[
        str | None,
        Field(description="The commit that is checked out; left out: the one with which the project is registered."),
    ] = None,
    include_orphans: Annotated[
        bool, Field(description="Memories whose `metadata.commit` is not in the history of `head` come too.")
    ] = False,
    timezone: Timezone = None,
    explain: Annotated[bool, Field(description="Say of each item why it is in the pack or not (`decisions`).")] = False,
) -> ContextPack:
    """Pack what an assistant should know for a task: the state of the project, and memories, links and passages.

    `text` is for the assistant and has at most `budget` tokens. The state wins over memories. `conflicts` names sides
    that exclude each other, the newer one first, and an older side is never there alone. `dropped` names what was left
    out. The same rows give the same bytes.
    """
    context_query = ContextQuery(query, namespace, budget, about, detail, clusters, explain, head, include_orphans)
    return await services.context.pack(caller.in_timezone(timezone), context_query)


@operation(
    "GET", f"{PATH}/usage", command="usage", tool="mem_usage", tag=TAG, speaker=Speaker.READER, errors=(403, 404)
)  # fmt: skip
async def context_usage(
    services: Services,
    caller: Caller,
    *,
    namespace: Annotated[str | None, Field(description="Only this project.")] = None,
    days: Annotated[int, Field(ge=1, le=MAX_DAYS, description="The last days, today included.")] = 30,
) -> ReadReport:
    """Count the tokens that packs gave, and how many fewer these are than the full texts. No query is kept."""
    return await services.reads.report(caller, namespace=namespace, days=days)


@operation(
    "POST", "/api/v1/brief", command="hook", tool="mem_get_initial_context", tag="search", speaker=Speaker.APP,
    in_timezone=True, errors=(403, 404, 413), body="BriefBody",
    examples={"a project": {"user_id": "alice", "app": "claude", "namespace": "webshop"}},
)  # fmt: skip
async def brief(
    services: Services,
    caller: Caller,
    *,
    namespace: Annotated[
        str | None, Field(description="The project. Memories of the default namespace come as well.")
    ] = None,
    budget: Annotated[
        int, Field(ge=briefs.MIN_BUDGET, le=briefs.MAX_BUDGET, description="The largest size in tokens.")
    ] = briefs.BUDGET,
    query: Annotated[
        str | None,
        Field(description="A prompt: only memories that fit it; left out: the most telling ones."),
    ] = None,
    head: Annotated[
        str | None,
        Field(
            description="The commit that is checked out: memories of commits that are not in its history are left out."
            " Left out: the one with which the project is registered."
        ),
    ] = None,
    timezone: Timezone = None,
    min_score: Annotated[
        float, Field(ge=0, le=1, description="With a query: only memories of at least this score.")
    ] = 0.5,
) -> Brief:
    """Write a brief for an assistant: a line for each of the most telling memories, within a budget of tokens.

    Without a query, it begins with the state of the project, in short.
    """
    caller = caller.in_timezone(timezone)
    lead, orphans = "", frozenset[UUID]()
    if namespace is not None:
        orphans = await services.anchors.orphans(caller, namespace, head)
    if query is None and namespace is not None:
        lead = await summary(await services.states.find(caller, namespace), budget // 4)
    return await services.briefs.brief(caller, BriefQuery(namespace, budget, query, min_score, lead, orphans))

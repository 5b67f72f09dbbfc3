"""REST endpoints for search."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Body, Query, Request

from openmemory.doors.rest.http.caller import Reader, TheAsking, TheServices
from openmemory.doors.rest.http.disconnect import while_connected
from openmemory.doors.rest.http.errors import documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.http.zones import InTimezone
from openmemory.doors.rest.schemas import AS_OF, EXPLAIN, SearchBody, without_none
from openmemory.operations.parameters import first_moment, last_moment
from openmemory.search.query import filters
from openmemory.search.schemas import SearchAnswer, SearchQuery

router = Router("/api/v1/memories/search", "search")


@router.get("", responses=documented(403, 404, 413), dependencies=[InTimezone])
async def search_by_query(
    request: Request,
    services: TheServices,
    caller: Reader,
    *,
    query: Annotated[str, Query(description="What to look for.", examples=["how does she drink her coffee"])],
    limit: Annotated[int | None, Query(ge=1, description="At most this many; left out: search.limit.")] = None,
    filter: Annotated[str | None, Query(description="Conditions in JSON, as the body of POST has them.")] = None,
    as_of: Annotated[datetime | None, Query(description=AS_OF)] = None,
    explain: Annotated[bool, Query(description=EXPLAIN)] = False,
) -> SearchAnswer:
    """Find a user's memories by meaning and by words, best first."""
    search_query = SearchQuery(
        query, limit, filter=filters.read(filter, zone=caller.timezone), as_of=as_of, explain=explain
    )
    return await while_connected(request, services.search.search(caller, search_query))


@router.post("", responses=documented(403, 404, 413), dependencies=[InTimezone])
async def search_memories(
    request: Request,
    services: TheServices,
    asking: TheAsking,
    body: Annotated[
        SearchBody,
        Body(
            openapi_examples={
                "anywhere": {"value": {"user_id": "alice", "query": "how does she drink her coffee"}},
                "as an app, in a project": {
                    "value": {
                        "user_id": "alice",
                        "app": "claude",
                        "query": "deployment days",
                        "namespace": "webshop",
                        "limit": 5,
                    }
                },
                "an overview": {
                    "summary": "Who the user is, what is new, a line for each project; without scores",
                    "value": {"user_id": "alice", "query": "what do you know about me?"},
                },
                "explained": {
                    "summary": "Why each result has its score",
                    "value": {"user_id": "alice", "query": "what did I decide in May 2026", "explain": True},
                },
                "what was said": {
                    "summary": "Messages, verbatim",
                    "value": {"user_id": "alice", "query": "which bicycle did she like", "corpus": "passages"},
                },
                "as of a time": {
                    "summary": "As if asked then",
                    "value": {"user_id": "alice", "query": "what did we plan last week", "as_of": "2026-05-01"},
                },
                "on a day of the user": {
                    "summary": "In a time zone",
                    "value": {"user_id": "alice", "query": "what happened yesterday?", "timezone": "Europe/Berlin"},
                },
                "with conditions": {
                    "value": {
                        "user_id": "alice",
                        "query": "what did we decide",
                        "filter": {
                            "AND": [
                                {"metadata.project": "webshop"},
                                {"metadata.priority": {"gte": 3}},
                                {"OR": [{"kind": "decision"}, {"category": ["work", "plans"]}]},
                                {"NOT": [{"app": "cursor"}]},
                                {"created_at": {"gte": "2026-01-31"}},
                            ]
                        },
                    }
                },
            }
        ),
    ],
) -> SearchAnswer:
    """Find memories by meaning and by words, best first. The answer says how it was found and why in this order.

    With `corpus`, messages of conversations are searched instead, or as well. They are in `passages` of the answer.
    """
    caller = await asking.as_reader(body.user_id, body.app)
    caller = caller.in_timezone(body.timezone)
    query = SearchQuery(
        text=body.query,
        limit=body.limit,
        namespaces=(*without_none(body.namespace), *body.namespaces),
        threads=without_none(body.thread_id),
        kinds=(*without_none(body.kind), *body.kinds),
        app_ids=tuple(body.app_ids),
        categories=tuple(body.categories),
        created_from=first_moment(body.from_date, caller.timezone),
        created_to=last_moment(body.to_date, caller.timezone),
        below=body.path or "",
        languages=without_none(body.language),
        symbol=body.symbol or "",
        filter=filters.parsed(body.filter, zone=caller.timezone),
        as_of=body.as_of,
        explain=body.explain,
    )
    return await while_connected(request, services.search.over(caller, query, body.corpus))

"""The list of memories: filtered, or found by search; and adding one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, NamedTuple
from urllib.parse import urlencode
from uuid import UUID

from fastapi import APIRouter, Query
from starlette.responses import Response

from openmemory.capture.schemas import Added, CaptureCreate
from openmemory.doors.rest.http.disconnect import while_connected
from openmemory.doors.web.explaining import ScoreBar, bars
from openmemory.doors.web.filters import ONLY, PAGE_SIZE, SORTED, Filters, TheFilters, as_values
from openmemory.doors.web.page import PageRequest, TheForm, ThePage, names_of, object_of, text_of
from openmemory.doors.web.templating import marks_of
from openmemory.memories.schemas import Event, MemoryCreate, MemoryRecord
from openmemory.memories.state import State
from openmemory.search.schemas import SearchAnswer, SearchQuery, SearchResult

router = APIRouter(include_in_schema=False)

_FOUND = "section#found"
"""The part of the page that search-as-you-type replaces, as htmx names it in `HX-Target`."""

PATIENCE = 10.0
"""The maximum seconds that a page waits for a language model. The model goes on after them."""


class Row(NamedTuple):
    """One memory of the list, from either way of finding it."""

    id: UUID
    text: str
    app: str
    added_by: str | None
    created_at: datetime
    state: State
    categories: Sequence[str]
    kind: str
    namespace: str
    labels: Sequence[str]
    expires_at: datetime | None
    superseded: bool
    newer: UUID | None = None
    """The memory that replaces it."""
    score: float | None = None
    bars: Sequence[ScoreBar] = ()

    @classmethod
    def from_record(cls, record: MemoryRecord) -> Row:
        """Returns the row of a record."""
        return cls(
            record.id, record.content, record.text_app_name, record.app_name, record.created_at, record.state,
            record.categories, record.kind, record.namespace, record.labels, record.expires_at,
            record.superseded_by is not None,
        )  # fmt: skip

    @classmethod
    def of_search(cls, result: SearchResult) -> Row:
        """Returns the row of a search result."""
        return cls(
            result.id, result.memory, result.app_name, result.added_by, result.created_at, State.ACTIVE,
            result.categories, result.kind, result.namespace, result.labels, result.expires_at, False,
            result.newer, result.score, bars(result.parts),
        )  # fmt: skip


class MemoryRows(NamedTuple):
    """The rows of a page, how many there are in all, and how they were found if that was by a search."""

    rows: list[Row]
    total: int
    pages: int = 1
    answer: SearchAnswer | None = None


@router.get("/ui/memories")
async def list_memories(
    page: ThePage, filters: TheFilters, number: Annotated[int, Query(alias="page")] = 1
) -> Response:
    """List memories, or show what a search finds."""
    finding = _search(page, filters) if filters.searched else _list(page, filters, number)
    listing, choices = await asyncio.gather(finding, _choices(page))
    if not listing.rows and listing.pages < number and listing.total:
        # The last page was emptied.
        return page.redirect(f"memories?{urlencode({**filters.parameters, 'page': listing.pages})}")
    categories = {name for row in listing.rows for name in row.categories}
    return page.render(
        "memories.html",
        filters=filters,
        of_category={name: page.link("memories", **{**filters.parameters, "category": name}) for name in categories},
        number=number,
        listing=listing,
        marks=marks_of(filters.q, whole=not filters.searched),
        choices=choices,
        states=["any", *State],
        only=ONLY,
        sorts=list(SORTED),
        audit_days=page.services.settings.audit.keep,
        may_change=page.may_write and page.caller.owner,
        first=not listing.total and not filters.parameters and number == 1,
    )


async def _list(page: PageRequest, filters: Filters, number: int) -> MemoryRows:
    result = await page.services.memories.list(page.caller, await filters.query(page, number))
    return MemoryRows([Row.from_record(each) for each in result.items], result.total, result.pages)


async def _search(page: PageRequest, filters: Filters) -> MemoryRows:
    query = SearchQuery(
        filters.q,
        PAGE_SIZE,
        namespaces=as_values(filters.namespace),
        threads=as_values(filters.thread),
        kinds=as_values(filters.kind),
        app_ids=await filters.app_ids(page),
        categories=as_values(filters.category),
        created_from=filters.created_from(page),
        created_to=filters.created_to(page),
    )
    answer = await while_connected(page.request, page.services.search.search(page.caller, query))
    return MemoryRows([Row.of_search(each) for each in answer.results], len(answer.results), answer=answer)


@router.post("/ui/memories")
async def add_memory(page: ThePage, form: TheForm) -> Response:
    """Add one memory, as it was written or through the language model."""
    new = MemoryCreate(
        text=text_of(form, "text"),
        metadata=object_of(form, "metadata"),
        namespace=text_of(form, "namespace") or "default",
        kind=text_of(form, "kind") or "memory",
        categories=tuple(names_of(form, "categories")),
    )
    infer = bool(text_of(form, "infer"))
    capture = CaptureCreate(new, wait=True, longest_wait=PATIENCE)
    result = await page.services.adding.add(page.caller, capture, infer=infer)
    return page.redirect_with_notice(_describe(result), page.back(form, "memories"))


def _describe(result: Added) -> str:
    """Describes the result for a text in one sentence."""
    if result.note:
        return result.note
    return "Added." if result.event is Event.ADD else "Nothing was added: a memory says this already."


async def _choices(page: PageRequest) -> dict[str, Any]:
    """Returns the apps and categories that the filters offer: only whoever reaches everything may see them all.

    The form with the filters is not part of what search-as-you-type replaces.
    """
    if not page.everything or page.request.headers.get("hx-target") == _FOUND:
        return {"apps": [], "categories": []}
    apps, categories = await asyncio.gather(
        page.services.apps.names(page.caller), page.services.stats.categories(page.caller)
    )
    return {"apps": apps, "categories": [category.name for category in categories.categories]}

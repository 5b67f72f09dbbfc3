"""The memory as of an earlier day, and what changed between two days."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Any

from fastapi import APIRouter
from starlette.responses import Response

from openmemory.doors.rest.http.disconnect import while_connected
from openmemory.doors.web.differences import Piece, difference
from openmemory.doors.web.filters import day_of
from openmemory.doors.web.page import PageRequest, ThePage
from openmemory.errors import Invalid
from openmemory.search.schemas import SearchQuery
from openmemory.search.sql.as_of import EARLIEST
from openmemory.search.timeline.schemas import WEEK, Change, MemoriesThen
from openmemory.serialization.zones import day_end, day_start

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 50
"""Memories or changes on a page, and the largest number that a search shows."""


@router.get("/ui/time")
async def show_then(page: ThePage, at: str = "", q: str = "", after: str = "") -> Response:
    """Show what was remembered at the end of a day, or search in it."""
    day = _day(at, "at") or page.today
    as_of = _end(page, day)
    answer, then = None, MemoriesThen(items=[], next=None)
    if q:
        searching = page.services.search.search(page.caller, SearchQuery(q, PAGE_SIZE, as_of=as_of))
        answer = await while_connected(page.request, searching)
    else:
        then = await page.services.timeline.then(page.caller, as_of, after=after, size=PAGE_SIZE)
    following = then.next or ""
    return page.render(
        "time.html", at=day, q=q, after=after, answer=answer, then=then, next=following, **await _bounds(page)
    )


@router.get("/ui/time/changes")
async def show_changes(page: ThePage, since: str = "", until: str = "", after: str = "") -> Response:
    """Show what changed from the beginning of one day to the end of another."""
    last = _day(until, "until") or page.today
    first = _day(since, "since") or last - WEEK
    begin = max(day_start(first, page.timezone), EARLIEST)
    result = await page.services.timeline.changes(page.caller, begin, _end(page, last), after=after, size=PAGE_SIZE)
    return page.render(
        "changes.html",
        since=first,
        until=last,
        after=after,
        changes=[(change, _parts(change)) for change in result.items],
        next=result.next or "",
        **await _bounds(page),
    )


async def _bounds(page: PageRequest) -> dict[str, Any]:
    """Returns the days from which a visitor may choose."""
    today = page.today
    first = await page.services.timeline.first(page.caller)
    return {"first": min(first.astimezone(page.timezone).date(), today) if first else today, "today": today}


def _parts(change: Change) -> list[Piece]:
    """Returns the words that differ, if the text changed."""
    return [] if change.before in (None, change.content) else difference(change.before or "", change.content)


def _day(value: str, field: str) -> date | None:
    day = day_of(value, field)
    if day is not None and day.year < EARLIEST.year:
        raise Invalid(field, f"must not be before {EARLIEST.year}")
    return day


def _end(page: PageRequest, day: date) -> datetime:
    """Returns the last moment of a day, or now if the day is today."""
    return datetime.now(UTC) if day == page.today else day_end(day, page.timezone)

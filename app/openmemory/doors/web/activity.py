"""The feed of what came in and what was read, live; a calendar of the last year; and captures with undo."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from time import monotonic
from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Header, Query
from starlette.responses import Response, StreamingResponse

from openmemory.access.authentication import Authenticator
from openmemory.audit.schemas import AuditAction
from openmemory.doors.web.charts import calendar
from openmemory.doors.web.page import PageRequest, TheForm, ThePage
from openmemory.doors.web.templating import render_template
from openmemory.errors import Invalid, TooMany
from openmemory.memories.lifecycle.schemas import UpcomingQuery
from openmemory.stats.feed import KINDS

router = APIRouter(include_in_schema=False)

PAGE_SIZE = 50
CAPTURES = 10
YEAR = 366

MAX_STREAMS = 50
"""The maximum number of live streams of one process. Others must come back, or load the page again."""

LOOKED_EVERY = 1.0
"""Seconds from one look for something new to the next."""

HEARTBEAT = 15.0
"""Seconds without anything new after which a comment is sent, so that a connection that ended is noticed."""

LASTING = 300.0
"""Seconds after which a stream ends. The browser connects again, and its key is checked again."""


WORDS = {
    "add": "wrote", "update": "changed", "pause": "paused", "archive": "archived", "expire": "let expire",
    "delete": "deleted", "delete_all": "deleted", "restore": "restored", "import": "imported", "erase": "erased",
    "search": "found", "list": "listed", "get": "opened", "export": "exported",
}  # fmt: skip
"""The verbs of the feed, by the second half of the event."""


@router.get("/ui/activity")
async def show_activity(
    page: ThePage,
    kind: str = "all",
    before: Annotated[int | None, Query(ge=1, le=2**63 - 1)] = None,
) -> Response:
    """Show what came in and what was read."""
    feed_page = await page.services.feed.page(page.caller, _events(kind), before=before, limit=PAGE_SIZE)
    written: Counter[date] = Counter()
    accessed: Counter[date] = Counter()
    for each in await page.services.stats.daily(page.caller, days=YEAR):
        written[each.day] += each.written
        accessed[each.day] += each.accessed
    return page.render(
        "activity.html",
        kind=kind,
        kinds=list(KINDS),
        before=before,
        entries=feed_page.entries,
        next=feed_page.next,
        newest=feed_page.entries[0].id if feed_page.entries else 0,
        words=WORDS,
        year=calendar(written, accessed, page.today),
        tools=await page.services.reads.tools(page.caller),
    )


@router.get("/ui/activity/captures")
async def list_captures(page: ThePage, number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1) -> Response:
    """List the captures: what was sent to the language model, and what became of it."""
    result = await page.services.captures.list(page.caller, page=number, size=CAPTURES)
    return page.render(
        "captures.html", captures=result.items, total=result.total, number=number, pages=-(-result.total // CAPTURES)
    )


@router.post("/ui/activity/captures/{capture_id}/undo")
async def undo_capture(page: ThePage, capture_id: UUID, form: TheForm) -> Response:
    """Undo everything that a capture did."""
    await page.services.captures.undo(page.caller, capture_id)
    return page.redirect_with_notice(
        "Undone: everything is as it was before this capture.", page.back(form, "activity/captures")
    )


@router.get("/ui/activity/upcoming")
async def list_upcoming(
    page: ThePage, days: int = 30, number: Annotated[int, Query(alias="page", ge=1, le=1_000_000)] = 1
) -> Response:
    """List what will expire or be archived."""
    query = UpcomingQuery(within_days=days, page=number, size=PAGE_SIZE)
    result = await page.services.upcoming.list(page.caller, query)
    return page.render(
        "upcoming.html",
        days=days,
        items=result.items,
        total=result.total,
        number=number,
        pages=-(-result.total // PAGE_SIZE),
    )


class Streams:
    """Counts the live streams of this process."""

    def __init__(self) -> None:
        self.open = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Counts a stream while the block runs."""
        self.open += 1
        try:
            yield
        finally:
            self.open -= 1


@router.get("/ui/activity/events")
async def stream(
    page: ThePage,
    kind: str = "all",
    after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Stream new entries of the feed as server-sent events, each a part of the page."""
    events = _events(kind)
    if last_event_id.isascii() and last_event_id.isdigit() and len(last_event_id) < 19:
        after = int(last_event_id)
    streams: Streams = page.request.app.state.streams
    if streams.open >= MAX_STREAMS:
        raise TooMany(f"{MAX_STREAMS} pages follow the activity already.", retry_after=LOOKED_EVERY * 30)
    await page.services.feed.since(page.caller, events, after, limit=1)  # a refusal must precede the stream
    return StreamingResponse(_messages(page, streams, events, after), media_type="text/event-stream")


async def _messages(
    page: PageRequest, streams: Streams, events: Sequence[AuditAction], after: int
) -> AsyncIterator[str]:
    """Looks for new entries until the stream has lasted long enough or the client is gone. Holds no connection to the
    database meanwhile."""
    with streams.one():
        end = last_message = monotonic()
        end += LASTING
        yield ": connected\n\n"
        authenticator: Authenticator = page.request.app.state.authenticator
        while monotonic() < end and await authenticator.still_valid(page.principal):
            if entries := await page.services.feed.since(page.caller, events, after, limit=PAGE_SIZE):
                after = entries[0].id
                html = render_template(
                    "entries.html", page.timezone, entries=entries, words=WORDS, link=_from_the_page(page), by=page.by
                )
                yield _message(after, html)
                last_message = monotonic()
            elif monotonic() - last_message > HEARTBEAT:
                yield ": nothing new\n\n"
                last_message = monotonic()
            await asyncio.sleep(LOOKED_EVERY)


def _from_the_page(page: PageRequest) -> Callable[[str], str]:
    """Returns links as they hold on the page that shows the stream, which is one level above the stream."""
    return lambda to: page.link(to).removeprefix("../")


def _message(id_: int, text: str) -> str:
    return "".join([f"id: {id_}\n", *(f"data: {line}\n" for line in text.splitlines()), "\n"])


def _events(kind: str) -> Sequence[AuditAction]:
    if kind not in KINDS:
        raise Invalid("kind", f"must be one of {', '.join(KINDS)}")
    return KINDS[kind]

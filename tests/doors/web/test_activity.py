"""The pages of activity, as a browser without scripts sees them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from datetime import date, timedelta
from typing import Any
from uuid import uuid4

import httpx
import pytest

from openmemory.doors.web import activity
from openmemory.doors.web.charts import calendar
from openmemory.memories.schemas import MemoryCreate, MemoryQuery
from openmemory.services import Services
from tests.doors.web.conftest import Visitor

Remember = Callable[..., Any]


async def test_what_came_in_and_what_was_read(visitor: Visitor, services: Services) -> None:
    app = await services.directory.caller(visitor.user, "claude")
    await visitor.get("activity")
    assert "Nothing yet." in visitor.words
    await services.memories.add_many(app, [MemoryCreate(f"Fact {number}") for number in range(5)])
    await services.memories.list(app, MemoryQuery())
    await visitor.get("activity")
    assert "claude listed 5 memories" in visitor.words
    assert "claude wrote 5 memories" in visitor.words
    assert "and 2 more" in visitor.words
    assert "5 memories written and 5 read in the last year" in visitor.words
    await visitor.get("activity", kind="written")
    assert "listed" not in visitor.words.partition("What came in")[2]
    await visitor.get("memories")
    await visitor.get("activity")
    assert visitor.words.count(" listed ") == 1


async def test_older_entries_are_on_the_next_page(visitor: Visitor, services: Services) -> None:
    app = await services.directory.caller(visitor.user, "claude")
    for number in range(52):
        await services.memories.add(app, MemoryCreate(f"Fact {number}"))
    await visitor.get("activity")
    assert "Fact 51" in visitor.words
    assert "Fact 1 " not in visitor.words
    before = visitor.shown.partition("before=")[2].partition('"')[0]
    await visitor.get("activity", before=before)
    assert "Fact 1 " in visitor.words
    assert "Newest" in visitor.words
    assert "hx-sse:connect" not in visitor.shown


async def test_captures_are_listed_and_given_up(visitor: Visitor, services: Services) -> None:
    await visitor.get("activity/captures")
    assert "Nothing was sent to a language model yet." in visitor.words
    await visitor.get("activity")
    await visitor.get("memories")
    await visitor.submit(f"activity/captures/{uuid4()}/undo", status=404)


async def test_what_will_expire_is_listed_with_its_reason(visitor: Visitor, remember: Remember) -> None:
    await visitor.get("activity/upcoming")
    assert "Nothing will expire or be archived in these days." in visitor.words
    await remember(visitor.user, "Parked on level 3", ttl_days=5)
    await remember(visitor.user, "The lease ends", ttl_days=50)
    await visitor.get("activity/upcoming")
    assert "1 memory, soonest first" in visitor.words
    assert "expires Parked on level 3 in 5 days" in visitor.words
    assert "by its own time" in visitor.words
    await visitor.get("activity/upcoming", days=60)
    assert "2 memories, soonest first" in visitor.words
    await visitor.get("activity/upcoming", days=-1, status=422)
    assert "within_days: must be from 0" in visitor.words


async def test_a_wrong_kind_is_refused_in_words(visitor: Visitor) -> None:
    for path in ("activity", "activity/events"):
        await visitor.get(path, status=422, kind="colour")
        assert "kind: must be one of all, written, read" in visitor.words


async def test_too_many_streams_are_refused(visitor: Visitor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activity, "MAX_STREAMS", 0)
    await visitor.get("activity/events", status=429)


async def test_a_stream_sends_what_is_new_and_ends_with_its_client(
    site: str, services: Services, new_user: str, eventually: Callable[..., Any], rest_app: Any
) -> None:
    app = await services.directory.caller(new_user, "claude")
    await services.memories.add(app, MemoryCreate("An old fact"))
    owner = await services.directory.caller(new_user, None, owner=True)
    newest = (await services.feed.page(owner, activity.KINDS["all"])).entries[0].id
    streams = rest_app.state.streams
    before = streams.open
    async with httpx.AsyncClient(base_url=site, timeout=20) as http:
        parameters = {"user": new_user, "after": newest}
        async with http.stream("GET", "/ui/activity/events", params=parameters) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            lines: AsyncIterator[str] = answer.aiter_lines()
            assert await anext(lines) == ": connected"
            assert streams.open == before + 1
            await services.memories.add(app, MemoryCreate("A new fact\nof two lines"))
            said = []
            while "A new fact" not in "".join(said):
                said.append(await anext(lines))
            assert "An old fact" not in "".join(said)
            assert [line for line in said if line.startswith("id: ")]

    async def ended() -> bool:
        return bool(streams.open == before)

    await eventually(ended, within=10)


def test_a_calendar_has_a_cell_for_every_day_and_says_its_figures() -> None:
    today = date(2026, 5, 31)
    year = calendar({today: 4, today - timedelta(days=40): 1}, {today: 4}, today)
    assert year.label == "5 memories written and 4 read in the last year"
    assert len(year.cells) == 53 * 7
    assert year.cells[-1] == (52 * 13, 6 * 13, 4, "31 May 2026: 4 written, 4 read")
    assert [cell.level for cell in year.cells if cell.level] == [1, 4]
    assert year.months[0] == ("May 2026", 4, 4)
    assert calendar({}, {}, today).cells[0].level == 0


async def test_head_of_the_live_stream_ends_after_the_headers(site: str, new_user: str, services: Services) -> None:
    await services.directory.caller(new_user, None, owner=True)
    async with asyncio.timeout(20), httpx.AsyncClient(base_url=site) as http:
        answer = await http.head("/ui/activity/events", params={"user": new_user})
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"].startswith("text/event-stream")

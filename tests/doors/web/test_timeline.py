"""The pages about earlier times, as a browser without scripts sees them."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from openmemory.memories.schemas import MemoryUpdate
from openmemory.memories.state import State
from openmemory.services import Services
from tests.doors.web.conftest import Visitor

Remember = Callable[..., Any]
DAY = timedelta(days=1)


async def test_a_day_shows_what_was_remembered_then(visitor: Visitor, remember: Remember) -> None:
    await visitor.get("time")
    assert "Nothing was remembered then." in visitor.words
    await remember(visitor.user, "An old note", created_at="2026-01-05T12:00:00Z")
    await remember(visitor.user, "A later note", created_at="2026-02-05T12:00:00Z")
    await visitor.get("time", at="2026-01-05")
    assert "At the end of 5 January 2026" in visitor.words
    assert "An old note" in visitor.words
    assert "A later note" not in visitor.words
    await visitor.get("time")
    assert "A later note" in visitor.words
    assert 'data-first="2026-01-05"' in visitor.shown


async def test_a_search_answers_as_of_the_day(visitor: Visitor, remember: Remember) -> None:
    await remember(visitor.user, "Her coffee is black", created_at="2026-01-05T12:00:00Z")
    await remember(visitor.user, "Her coffee has milk", created_at="2026-02-05T12:00:00Z")
    await visitor.get("time", at="2026-01-06", q="coffee")
    assert "Her coffee is black" in visitor.words
    assert "Her coffee has milk" not in visitor.words


@pytest.mark.slow
async def test_older_memories_follow_on_the_next_page(visitor: Visitor, remember: Remember) -> None:
    for number in range(52):
        await remember(
            visitor.user, f"Note {number}", created_at=(datetime(2026, 1, 1, tzinfo=UTC) + number * DAY).isoformat()
        )
    await visitor.get("time", at="2026-03-01")
    assert "Note 51" in visitor.words
    assert "Note 1 " not in visitor.words
    after = visitor.shown.partition("after=")[2].partition('"')[0].replace("%3A", ":")
    await visitor.get("time", at="2026-03-01", after=after)
    assert "Note 1 " in visitor.words
    assert "Note 0" in visitor.words
    assert "Older" not in visitor.words


async def test_what_changed_is_shown_word_by_word(visitor: Visitor, services: Services, remember: Remember) -> None:
    owner = await services.directory.caller(visitor.user, None, owner=True)
    row = await remember(visitor.user, "Alice drinks black tea at noon")
    await services.memories.update(owner, UUID(row["id"]), MemoryUpdate("Alice drinks green tea at noon"))
    await services.memories.change_state(owner, [UUID(row["id"])], State.ARCHIVED)
    await visitor.get("time/changes")
    assert "<del>black</del><ins>green</ins>" in visitor.shown
    words = visitor.words
    assert words.index("archived") < words.index("changed", words.index("archived")) < words.index("added")
    await visitor.get("time/changes", since="2026-01-01", until="2026-01-02")
    assert "Nothing changed in these days." in visitor.words


@pytest.mark.parametrize(
    ("path", "parameters", "words"),
    [
        ("time", {"at": "today"}, "at: must be a date such as 2026-05-31"),
        ("time", {"at": "0001-01-01"}, "at: must not be before 1970"),
        ("time", {"at": "9999-12-31"}, "as_of: must lie between 1970 and now"),
        ("time", {"after": "x"}, "after: must be the end of a page"),
        ("time/changes", {"since": "2026-02-01", "until": "2026-01-01"}, "since: must not be later than `until`"),
    ],
)
async def test_a_wrong_day_is_refused_in_words(
    visitor: Visitor, path: str, parameters: dict[str, str], words: str
) -> None:
    await visitor.get(path, status=422, **parameters)
    assert words in visitor.words


BERLIN = "openmemory_timezone=Europe%2FBerlin"
"""The cookie that the scripts of the page set."""


async def test_days_are_those_of_the_browser(visitor: Visitor, remember: Remember) -> None:
    await remember(visitor.user, "Said at night", created_at="2026-05-02T22:30:00Z")
    await visitor.get("time", at="2026-05-02")
    assert "Said at night" in visitor.words
    assert "Days are those of UTC." in visitor.words
    visitor.http.headers["Cookie"] = BERLIN
    try:
        await visitor.get("time", at="2026-05-02")
        assert "Said at night" not in visitor.words
        assert "Days are those of Europe/Berlin." in visitor.words
        await visitor.get("time/changes", since="2026-05-03", until="2026-05-03")
        assert "Said at night" in visitor.words
        for since, until, shown in (("2026-05-03", "2026-05-03", True), ("2026-05-01", "2026-05-02", False)):
            await visitor.get("memories", since=since, until=until)
            assert ("Said at night" in visitor.words) is shown
        await visitor.get("memories")
        assert 'title="2026-05-03 00:30:00 CEST">3 May 2026' in visitor.shown
        visitor.http.headers["Cookie"] = "openmemory_timezone=Mars%2FPhobos"
        await visitor.get("memories")
        assert 'title="2026-05-02 22:30:00 UTC">2 May 2026' in visitor.shown
    finally:
        del visitor.http.headers["Cookie"]

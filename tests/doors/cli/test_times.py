"""Times in options, as people write them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest
import typer

from openmemory.doors.cli import times

NOW = datetime(2026, 11, 27, 2, 30, tzinfo=UTC)
"""A Friday; in New York it is Thursday still."""

Span = Callable[[str], tuple[str, str]]


@pytest.fixture(params=["UTC", "America/New_York", "Asia/Kolkata"])
def zone(request: pytest.FixtureRequest) -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield request.param
    time.tzset()


def wall(text: str) -> tuple[str, str]:
    """The clocks at both ends of a time, in the time zone of this machine."""
    return tuple(moment.astimezone().strftime("%Y-%m-%d %H:%M:%S") for moment in times._span(text, NOW, None))  # type: ignore[return-value]


def whole(first: str, last: str) -> tuple[str, str]:
    return f"{first} 00:00:00", f"{last} 23:59:59"


@pytest.mark.parametrize(
    ("text", "days_ago"), [("today", 0), ("yesterday", 1), ("Yesterday", 1), ("2 days ago", 2), ("a week ago", 7)]
)
def test_days_are_those_of_the_clock_on_the_wall(zone: str, text: str, days_ago: int) -> None:
    day = f"2026-11-{(26 if zone == 'America/New_York' else 27) - days_ago}"
    assert wall(text) == whole(day, day)


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("2026-01-31", "2026-01-31", "2026-01-31"),
        ("last week", "2026-11-16", "2026-11-22"),
        ("last monday", "2026-11-23", "2026-11-23"),
        ("this month", "2026-11-01", "2026-11-30"),
        ("3 months ago", "2026-08-01", "2026-08-31"),
        ("last year", "2025-01-01", "2025-12-31"),
        ("may", "2026-05-01", "2026-05-31"),
        ("May 2023", "2023-05-01", "2023-05-31"),
        ("3 may 2026", "2026-05-03", "2026-05-03"),
        ("May 3, 2026", "2026-05-03", "2026-05-03"),
        ("2023", "2023-01-01", "2023-12-31"),
    ],
)
def test_a_period_goes_from_its_first_moment_to_its_last_second(zone: str, text: str, first: str, last: str) -> None:
    assert wall(text) == whole(first, last), zone


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-01-31T10:00Z", "2026-01-31T10:00:00+00:00"),
        ("2026-01-31 10:00:30+05:00", "2026-01-31T05:00:30+00:00"),
        ("1769817600", "2026-01-31T00:00:00+00:00"),
        ("30 minutes ago", "2026-11-27T02:00:00+00:00"),
        ("an hour ago", "2026-11-27T01:30:00+00:00"),
        ("now", "2026-11-27T02:30:00+00:00"),
    ],
)
def test_a_moment_begins_and_ends_at_once(text: str, moment: str) -> None:
    assert {each.astimezone(UTC).isoformat() for each in times._span(text, NOW, None)} == {moment}


def test_a_time_without_an_offset_is_of_this_time_zone(zone: str) -> None:
    assert wall("2026-01-31T10:00") == ("2026-01-31 10:00:00",) * 2, zone


@pytest.mark.parametrize(
    "text",
    ["", "foo", "2", "12/05/2026", "31 feb 2026", "2026-02-31", "yesterday and 2023", "last foo", "2 days", "mayhem",
     "2026-01-31T99:00", "9999999 days ago", "since may", "999999999999"],
)  # fmt: skip
def test_what_is_no_time_is_refused_with_what_would_be_one(text: str) -> None:
    with pytest.raises(typer.BadParameter, match=r"valid are 2026-01-31.*yesterday"):
        times.start(text)


def test_never_and_nothing_stay() -> None:
    assert (times.start(None), times.end(None), times.utc_day(None)) == (None, None, None)
    assert times.start_or_never("never") == "never"


@pytest.mark.parametrize(
    ("text", "first", "last"),
    [
        ("last night", "26 18:00:00", "27 05:59:59"),
        ("this morning", "27 04:00:00", "27 11:59:59"),
        ("yesterday afternoon", "26 12:00:00", "26 17:59:59"),
        ("tonight", "26 18:00:00", "27 05:59:59"),
        ("last weekend", "21 00:00:00", "22 23:59:59"),
    ],
)
@pytest.mark.parametrize("zone", ["UTC"], indirect=True)
def test_parts_of_days_are_those_of_the_clock_on_the_wall(zone: str, text: str, first: str, last: str) -> None:
    """It is half past two at night."""
    assert wall(text) == (f"2026-11-{first}", f"2026-11-{last}")


def test_the_last_hours_and_days_go_on_until_now() -> None:
    hours = times._span("last 24 hours", NOW, UTC)
    assert hours == (datetime(2026, 11, 26, 2, 30, tzinfo=UTC), NOW)
    assert times._span("past 3 days", NOW, UTC) == (datetime(2026, 11, 24, tzinfo=UTC), NOW)

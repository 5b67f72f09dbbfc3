"""Time zones and the ends of days in them."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
import tzlocal
from pydantic import TypeAdapter, ValidationError

from openmemory.config.sections import AccessSettings
from openmemory.errors import Invalid
from openmemory.serialization.timestamps import TimeBound
from openmemory.serialization.zones import (
    day_end,
    day_shown,
    day_start,
    in_zone,
    machine_zone,
    placed,
    zone_named,
    zone_or_none,
)

BERLIN, KIRITIMATI, MIDWAY = (ZoneInfo(name) for name in ("Europe/Berlin", "Pacific/Kiritimati", "Pacific/Midway"))
BOUND: TypeAdapter[TimeBound] = TypeAdapter(TimeBound)


@pytest.mark.parametrize(
    "name",
    ["UTC", "Europe/Berlin", "Asia/Kolkata", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "America/Port-au-Prince"],
)
def test_a_zone_has_the_name_of_the_iana(name: str) -> None:
    assert zone_named(name).key == name


@pytest.mark.parametrize(
    "name",
    ["", "Mars/Phobos", "America", "/etc/passwd", "../../etc/passwd", "Europe/../Europe/Berlin", "europe/berlin ",
     "+01:00", "localtime", "posix/Europe/Berlin", "right/UTC", "Factory", "zone.tab", "Europe/Berlin\n",
     "A" * 10_000, "\0", "a/b/c/d/e/f"],
)  # fmt: skip
def test_what_is_no_zone_is_refused_by_the_name_of_its_field(name: str) -> None:
    assert zone_or_none(name) is None
    with pytest.raises(Invalid, match=r"^X-Timezone: must be the IANA name of a time zone, such as Europe/Berlin"):
        zone_named(name, "X-Timezone")


def test_the_setting_is_a_zone_or_that_of_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AccessSettings(default_timezone="Asia/Kolkata").timezone.key == "Asia/Kolkata"
    for machine, zone in (("Europe/Berlin", "Europe/Berlin"), ("UTC", "UTC"), ("Etc/UTC", "UTC")):
        monkeypatch.setenv("TZ", machine)
        tzlocal.reload_localzone()
        machine_zone.cache_clear()
        assert AccessSettings().timezone.key == zone
    with pytest.raises(ValidationError, match="must be auto, or the IANA name of a time zone"):
        AccessSettings(default_timezone="Mars/Phobos")


@pytest.mark.parametrize(("day", "hours"), [("2026-03-29", 23), ("2026-10-25", 25), ("2026-07-01", 24)])
def test_a_day_ends_where_the_next_begins(day: str, hours: int) -> None:
    given = date.fromisoformat(day)
    first, last = day_start(given, BERLIN), day_end(given, BERLIN)
    assert last - first == timedelta(hours=hours, microseconds=-1)
    assert day_shown(first, BERLIN) == day_shown(last, BERLIN) == day
    assert day_shown(last + timedelta(microseconds=1), BERLIN) != day


def test_the_ends_of_the_calendar_fail_nowhere() -> None:
    for zone in (KIRITIMATI, MIDWAY, BERLIN):
        for day in (date.min, date.max):
            assert day_start(day, zone) <= day_end(day, zone)
            assert day_shown(day_start(day, zone), zone)
    assert placed(datetime.max, MIDWAY) == datetime.max.replace(tzinfo=UTC)
    assert placed(datetime.min, BERLIN) == datetime.min.replace(tzinfo=UTC)
    assert in_zone(datetime.max.replace(tzinfo=UTC), KIRITIMATI) == datetime.max.replace(tzinfo=UTC)


@pytest.mark.parametrize(
    ("given", "first", "last"),
    [
        ("2026-05-03", "2026-05-02T22:00:00", "2026-05-03T21:59:59.999999"),
        ("2026-05-03T12:00", "2026-05-03T10:00:00", "2026-05-03T10:00:00"),
        ("2026-05-03T12:00Z", "2026-05-03T12:00:00", "2026-05-03T12:00:00"),
        (1_777_809_600, "2026-05-03T12:00:00", "2026-05-03T12:00:00"),
        ("1777809600", "2026-05-03T12:00:00", "2026-05-03T12:00:00"),
    ],
)
def test_a_bound_without_an_offset_is_of_the_zone_and_a_date_is_its_whole_day(
    given: Any, first: str, last: str
) -> None:
    bound = BOUND.validate_python(given)
    assert bound.first(BERLIN) == datetime.fromisoformat(first).replace(tzinfo=UTC)
    assert bound.last(BERLIN) == datetime.fromisoformat(last).replace(tzinfo=UTC)


@pytest.mark.parametrize("given", ["soon", "2026-02-30", "2026-13", 10**18, None, "", [], "2026-05-03T99:00"])
def test_a_bound_that_is_no_time_is_refused(given: Any) -> None:
    with pytest.raises(ValidationError):
        BOUND.validate_python(given)

"""Time zones: by their IANA names, of this machine, and what a clock in one shows. No other module looks zones up."""

from __future__ import annotations

import re
import warnings
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import cache
from zoneinfo import ZoneInfo

from openmemory.errors import Invalid

UTC_ZONE = ZoneInfo("UTC")

HEADER = "X-Timezone"
"""The header with which a request names the time zone of its user."""
FIELD = "timezone"
"""The query parameter, field of a body and argument of a tool with the same meaning."""

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_+-]{0,31}(?:/[A-Za-z0-9_+-]{1,31}){0,3}")
"""The form of an IANA name. Nothing else is looked for in the file system."""

_NO_PLACES = re.compile(r"(?:posix|right)/.*|localtime|posixrules|Factory", re.DOTALL)
"""Files beside the zones that are no names of the IANA."""

_WORDS = "must be the IANA name of a time zone, such as Europe/Berlin or UTC"


def zone_or_none(name: str | None) -> ZoneInfo | None:
    """Returns the time zone of an IANA name; None if there is no such zone."""
    if name is None or not NAME.fullmatch(name) or _NO_PLACES.fullmatch(name):
        return None
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError):  # a folder such as America is an OSError
        return None


def zone_named(name: str, field: str = FIELD) -> ZoneInfo:
    """Returns the time zone of an IANA name.

    Raises:
        Invalid: there is no such zone; the message begins with `field`.
    """
    zone = zone_or_none(name)
    if zone is None:
        raise Invalid(field, _WORDS)
    return zone


@cache
def machine_zone() -> ZoneInfo | None:
    """The time zone of this machine; None if it is unknown, or UTC, as on most servers, which tells of no user."""
    import tzlocal

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            zone = zone_or_none(tzlocal.get_localzone_name())
        except (ValueError, OSError, LookupError):
            return None
    return None if zone is None or zone.key.rpartition("/")[2] in ("UTC", "UCT", "Universal", "Zulu") else zone


def day_shown(moment: datetime, zone: ZoneInfo) -> str:
    """The day on which a moment lies in a time zone, such as `2026-01-31`."""
    return f"{in_zone(moment, zone):%Y-%m-%d}"


def in_zone(moment: datetime, zone: tzinfo) -> datetime:
    """A moment as a clock in a time zone shows it. At the ends of the calendar, where no clock can, it stays in UTC."""
    try:
        return moment.astimezone(zone)
    except OverflowError:
        return moment.astimezone(UTC)


def today(zone: ZoneInfo, now: datetime | None = None) -> date:
    """The day that it is now in a time zone."""
    return (now or datetime.now(UTC)).astimezone(zone).date()


def day_start(day: date, zone: ZoneInfo) -> datetime:
    """The first moment of a day in a time zone, in UTC."""
    return placed(datetime.combine(day, time()), zone)


def day_end(day: date, zone: ZoneInfo) -> datetime:
    """The last microsecond of a day in a time zone, in UTC. A day has 23 to 25 hours."""
    if day == date.max:
        return _LAST
    return day_start(day + timedelta(days=1), zone) - timedelta(microseconds=1)


def placed(moment: datetime, zone: tzinfo) -> datetime:
    """A moment in UTC; without an offset, it is what a clock in the time zone shows. Moments before the year 1 and
    after the year 9999 in UTC become the first and the last one."""
    try:
        return (moment if moment.tzinfo else moment.replace(tzinfo=zone)).astimezone(UTC)
    except OverflowError:
        return _FIRST if moment.year == 1 else _LAST


_FIRST, _LAST = (moment.replace(tzinfo=UTC) for moment in (datetime.min, datetime.max))

"""Times as people write them in options: dates, times, and words such as `yesterday`, in the local time zone."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta, tzinfo

import typer

_VALID = (
    "is not a time; valid are 2026-01-31, 2026-01-31T12:00, today, yesterday, '2 days ago', '3 hours"
    " ago', 'last week', 'last night', 'last 24 hours', 'last monday', 'May 2026' and their like"
)
_EPOCH = re.compile(r"\d{9,11}")
_DATE = re.compile(r"\d{4}-\d\d-\d\d")
_TIME = re.compile(r"\d{4}-\d\d-\d\d[t ]\d\d:\S+")
_AGO = re.compile(r"(an?|\d{1,4}) (minute|hour|day|week)s? ago")
_MONTH = r"(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)[a-z]*"
_NAMED = re.compile(
    rf"today|yesterday|tomorrow|tonight|(?:yesterday|tomorrow) [a-z]+|(?:last|past) \d{{1,4}} [a-z]+"
    rf"|(?:\d{{1,3}}|an?) (?:month|year)s? ago|(?:last|this|next) [a-z]+"
    rf"|\d{{4}}|(?:\d{{1,2}} )?{_MONTH}(?: \d{{1,2}},?)?(?: \d{{4}})?"
)

_DAY_OF_MONTH = re.compile(r"\b\d{1,2}\b(?! (?:minute|hour|day|week|month|year))")


def start(text: str | None) -> str | None:
    """The first moment of the time that an option names, as the API takes it; None if it was not given.

    Raises:
        BadParameter: it names none.
    """
    return None if text is None else _span(text, datetime.now(UTC), None)[0].astimezone(UTC).isoformat()


def end(text: str | None) -> str | None:
    """The last second of the time that an option names, as the API takes it; None if it was not given.

    Raises:
        BadParameter: it names none.
    """
    return None if text is None else _span(text, datetime.now(UTC), None)[1].astimezone(UTC).isoformat()


def start_or_never(text: str | None) -> str | None:
    """The same as `start`, but `never` stays."""
    return text if text == "never" else start(text)


def utc_day(text: str | None) -> str | None:
    """The day in UTC on which the time that an option names begins; None if it was not given.

    Raises:
        BadParameter: it names none.
    """
    return None if text is None else _span(text, datetime.now(UTC), UTC)[0].date().isoformat()


def _span(text: str, now: datetime, zone: tzinfo | None) -> tuple[datetime, datetime]:
    """The first moment and the last second of a time. `zone`: None is the zone of this machine.

    Raises:
        BadParameter: the text names no time.
    """
    words = " ".join(text.lower().split())
    try:
        if _EPOCH.fullmatch(words):
            moment = datetime.fromtimestamp(int(words), UTC)
            return moment, moment
        if _DATE.fullmatch(words):
            return _day(date.fromisoformat(words), zone)
        if _TIME.fullmatch(words):
            moment = datetime.fromisoformat(words.upper())
            moment = moment if moment.tzinfo else _local(moment, zone)
            return moment, moment
        if words == "now":
            return now, now
        if ago := _AGO.fullmatch(words):
            number = int(ago[1]) if ago[1].isdigit() else 1
            moment = now - timedelta(**{f"{ago[2]}s": number})
            exact = ago[2] in ("minute", "hour")
            return (moment, moment) if exact else _day(moment.astimezone(zone).date(), zone)
        if _NAMED.fullmatch(words):
            return _parse_name(words, now, zone)
    except (ValueError, OverflowError, OSError):
        pass  # such as the 31st of February
    raise typer.BadParameter(f"{text!r} {_VALID}")


def _parse_name(words: str, now: datetime, zone: tzinfo | None) -> tuple[datetime, datetime]:
    """A time that its words name, as a search reads them."""
    from openmemory.search.query import periods

    # A search reads times in UTC: it is given the clock on the wall, and so answers with it.
    wall = now.astimezone(zone).replace(tzinfo=UTC)
    since = [one.start for one in periods.read(f"since {words}", wall).times]
    if (day := _DAY_OF_MONTH.search(words)) and [one.day for one in since if one] != [int(day[0])]:
        raise ValueError(words)
    for one in (*periods.read(words, wall).times, *periods.read(f"in {words}", wall).times):
        if one.start is not None and since == [one.start]:
            # The last hours and days go on until now.
            return _local(one.start, zone), now if one.end is None else _local(one.end, zone) - timedelta(seconds=1)
    raise ValueError(words)


def _day(day: date, zone: tzinfo | None) -> tuple[datetime, datetime]:
    first, next_ = (_local(datetime.combine(one, time()), zone) for one in (day, day + timedelta(days=1)))
    return first, next_ - timedelta(seconds=1)


def _local(wall: datetime, zone: tzinfo | None) -> datetime:
    """The moment at which the clock of a zone shows a time."""
    return wall.replace(tzinfo=None).astimezone() if zone is None else wall.replace(tzinfo=zone)

"""Times in the formats of the OpenMemory contract: epoch seconds in some places, naive ISO in others."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any

from pydantic import BeforeValidator, PlainSerializer

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def naive_iso(moment: datetime) -> str:
    """Returns a time as OpenMemory wrote it: UTC, ISO 8601, no offset. Its web page appends the Z itself."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()


def epoch_seconds(moment: datetime) -> int:
    """Returns whole seconds since 1970, rounded down. Exact: a float of the year 9999 would round up into the next."""
    return (moment - _EPOCH) // timedelta(seconds=1)


def epoch_time(value: Any) -> datetime | None:
    """Returns the time that a number means, or its digits as text; None if the value is neither.

    Its magnitude tells whether it counts seconds, milliseconds, microseconds or nanoseconds since 1970: the first are
    below 1e11 until the year 5138, and the others are above it from 1973 on.

    Raises:
        ValueError: the time is outside of the years 1 to 9999.
    """
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = float(value) if "." in value else int(value)
    if isinstance(value, bool) or not isinstance(value, int | float) or not -1e21 < value < 1e21:
        return None
    unit = next((unit for limit, unit in _UNITS if abs(value) < limit), 1)
    whole, rest = divmod(value, unit)
    try:
        return _EPOCH + timedelta(seconds=whole, microseconds=rest * 1_000_000 / unit)
    except OverflowError:
        raise ValueError("must lie within the years 1 to 9999") from None


_DIGITS = re.compile(r"[+-]?\d{9,19}(?:\.\d{1,9})?")
"""Fewer digits may be a date such as 20260131."""
_UNITS = ((1e11, 1), (1e14, 1_000), (1e17, 1_000_000), (1e21, 1_000_000_000))


def _from_epoch(value: Any) -> Any:
    moment = epoch_time(value)
    return value if moment is None else moment


def _midnight(value: Any) -> Any:
    is_date = isinstance(value, str) and _DATE.fullmatch(value)
    return f"{value}T00:00:00Z" if is_date else _from_epoch(value)


def _seconds(value: Any) -> Any:
    if not isinstance(value, str) or not _ISO.match(value):
        return value
    try:
        moment = datetime.fromisoformat(value)
        return epoch_seconds(moment if moment.tzinfo else moment.replace(tzinfo=UTC))
    except ValueError:
        raise ValueError("must be seconds since 1970, or a date or time such as 2026-01-31T12:00:00Z") from None


_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_ISO = re.compile(r"\d{4}-\d{2}")

TimeInput = Annotated[datetime, BeforeValidator(_from_epoch)]
"""A time in ISO 8601, or as a number since 1970 in any unit."""

DateOrTime = Annotated[datetime, BeforeValidator(_midnight)]
"""A time as in `TimeInput`, or a date, which means its first moment in UTC."""

EpochInput = Annotated[int, BeforeValidator(_seconds, json_schema_input_type=int | str)]
"""Seconds since 1970, or a date or time in ISO 8601, of UTC unless it says otherwise."""

NaiveTime = Annotated[datetime, PlainSerializer(naive_iso, return_type=str)]
EpochSeconds = Annotated[datetime, PlainSerializer(epoch_seconds, return_type=int)]

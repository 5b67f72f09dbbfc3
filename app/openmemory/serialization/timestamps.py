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


def _midnight(value: Any) -> Any:
    is_date = isinstance(value, str) and _DATE.fullmatch(value)
    return f"{value}T00:00:00Z" if is_date else value


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

DateOrTime = Annotated[datetime, BeforeValidator(_midnight)]
"""A time, or a date, which means its first moment in UTC."""

EpochInput = Annotated[int, BeforeValidator(_seconds, json_schema_input_type=int | str)]
"""Seconds since 1970, or a date or time in ISO 8601, of UTC unless it says otherwise."""

NaiveTime = Annotated[datetime, PlainSerializer(naive_iso, return_type=str)]
EpochSeconds = Annotated[datetime, PlainSerializer(epoch_seconds, return_type=int)]

"""Times in the formats of the OpenMemory contract: epoch seconds in some places, naive ISO in others."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from pydantic import BeforeValidator, GetCoreSchemaHandler, GetJsonSchemaHandler, PlainSerializer
from pydantic_core import CoreSchema, core_schema

from openmemory.serialization.zones import day_end, day_start, placed

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


class TimeBound:
    """One end of a range of time, as a request gives it: seconds since 1970, or a date or time in ISO 8601.

    What has no offset belongs to the time zone of the request, and a date to the whole of its day.
    """

    __slots__ = ("_value",)

    def __init__(self, value: int | date) -> None:
        """`value`: seconds, a date, or a `datetime`."""
        self._value = value

    def first(self, zone: ZoneInfo) -> datetime:
        """The bound as the beginning of a range: a date means its first moment."""
        day = self._day
        return self._moment(zone) if day is None else day_start(day, zone)

    def last(self, zone: ZoneInfo) -> datetime:
        """The bound as the end of a range, which belongs to it: a date means its last moment."""
        day = self._day
        return self._moment(zone) if day is None else day_end(day, zone)

    @property
    def _day(self) -> date | None:
        value = self._value
        return value if isinstance(value, date) and not isinstance(value, datetime) else None

    def _moment(self, zone: ZoneInfo) -> datetime:
        if isinstance(self._value, datetime):
            return placed(self._value, zone)
        assert isinstance(self._value, int)
        return datetime.fromtimestamp(self._value, UTC)

    @classmethod
    def __get_pydantic_core_schema__(cls, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Returns how pydantic reads a bound: as seconds, unless it looks like ISO 8601."""
        seconds = core_schema.int_schema(ge=_YEAR_1, le=_YEAR_9999)
        return core_schema.no_info_wrap_validator_function(cls._read, seconds)

    @classmethod
    def __get_pydantic_json_schema__(cls, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Returns the schema of what is accepted."""
        return {"anyOf": [handler(schema), {"type": "string"}]}

    @classmethod
    def _read(cls, value: Any, seconds: Callable[[Any], int]) -> TimeBound:
        if isinstance(value, cls):
            return value
        if not isinstance(value, str):
            return cls(seconds(value))
        try:
            if not _ISO.match(value):
                return cls(seconds(value))
            return cls(date.fromisoformat(value) if _DATE.fullmatch(value) else datetime.fromisoformat(value))
        except ValueError:  # pydantic's errors are of this class
            raise ValueError("must be seconds since 1970, or a date or time such as 2026-01-31T12:00:00Z") from None


_YEAR_1, _YEAR_9999 = -62_135_596_800, 253_402_300_799

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_ISO = re.compile(r"\d{4}-\d{2}")

TimeInput = Annotated[datetime, BeforeValidator(_from_epoch)]
"""A time in ISO 8601, or as a number since 1970 in any unit."""

DateOrTime = Annotated[datetime, BeforeValidator(_midnight)]
"""A time as in `TimeInput`, or a date, which means its first moment in UTC."""

NaiveTime = Annotated[datetime, PlainSerializer(naive_iso, return_type=str)]
EpochSeconds = Annotated[datetime, PlainSerializer(epoch_seconds, return_type=int)]

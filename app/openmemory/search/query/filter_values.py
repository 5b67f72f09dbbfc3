"""The fields that a filter may test, with their operators and values. Has no side effects."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from openmemory.memories.fields import FIELDS

_YEAR = "(?!0000)[0-9]{4}"
_LEAP = "(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)"
_LONG = "(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])"
_SHORT = "(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)"
_DAY = f"(?:{_YEAR}-(?:{_LONG}|{_SHORT}|02-(?:0[1-9]|1[0-9]|2[0-8]))|(?!0000){_LEAP}-02-29)"
_TIME = "(?:[01][0-9]|2[0-3]):[0-5][0-9](?::[0-5][0-9](?:[.][0-9]{1,9})?)?"
_OFFSET = "(?:Z|[+-](?:0[0-9]|1[0-4])(?::?[0-5][0-9])?)"
ISO = f"{_DAY}(?:[T ]{_TIME}{_OFFSET}?)?"
"""The accepted format of times. Both Python and PostgreSQL can read every text that matches."""


Scalar = str | int | float | bool | datetime | UUID
"""A value to compare with."""

_EQUALITY = ("eq", "ne", "in", "nin")
_RANGE = ("gt", "gte", "lt", "lte")
_PARTIAL = ("contains", "icontains")


@dataclass(frozen=True, slots=True)
class FieldKind:
    """The kind of a field's values: its operators, the types of values in words, and a check."""

    operators: tuple[str, ...]
    values: str
    checked: Callable[[Any], Scalar | None]
    """Returns the value in comparable form, or None if it has the wrong type."""


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _id(value: Any) -> UUID | None:
    try:
        return UUID(value) if isinstance(value, str) else None
    except ValueError:
        return None


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    return number if math.isfinite(number) else None


def _moment(value: Any) -> datetime | None:
    """Returns a time, in UTC if it has an offset."""
    if not isinstance(value, str) or re.fullmatch(ISO, value) is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
        return moment if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError:
        return None


def is_day(value: Any) -> bool:
    """Returns True for a date without a time of day."""
    return isinstance(value, str) and re.fullmatch(_DAY, value) is not None


def _scalar(value: Any) -> Scalar | None:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, str | bool | int | float) else None


def _comparable(value: Any) -> Scalar | None:
    moment = _moment(value)
    if moment is not None:
        return moment
    return None if isinstance(value, bool | str) else _scalar(value)


_TIMES = "a time such as 2026-01-31 or 2026-01-31T12:00:00Z"
TEXTS = FieldKind((*_EQUALITY, *_PARTIAL, "exists"), "a text", _text)
_IDS = FieldKind((*_EQUALITY, "exists"), "an id, such as 6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e", _id)
_NUMBERS = FieldKind((*_EQUALITY, *_RANGE, "exists"), "a number", _number)
MOMENTS = FieldKind((*_EQUALITY, *_RANGE, "exists"), _TIMES, _moment)
METADATA = FieldKind((*_EQUALITY, *_RANGE, *_PARTIAL, "exists"), "a text, a number, true or false", _scalar)

RANGED = FieldKind((), f"a number, or {_TIMES}", _comparable)
"""The kinds of values that a range in the metadata accepts."""

_KINDS = {"text": TEXTS, "uuid": _IDS, "double precision": _NUMBERS, "timestamptz": MOMENTS}
OWN = {one.name: _KINDS[one.type] for one in FIELDS if one.filterable}
"""The fields of a memory itself."""

ALIASES = {"categories": "category"}
"""The names in mem0."""

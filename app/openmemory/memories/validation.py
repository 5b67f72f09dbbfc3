"""Input validation: sizes from the settings, and characters that every store can hold. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, TypeVar

import orjson

from openmemory.config.settings import LimitSettings
from openmemory.errors import Invalid, TooLarge
from openmemory.identity.names import category_name, checked_name, storable
from openmemory.serialization import exact_json

QueryT = TypeVar("QueryT", bound=Any)

MAX_CATEGORIES = 100
MAX_DAYS = 36_500
"""The longest delay in days for an automatic action: a hundred years."""
MAX_FILTERS = 100


def text(value: str, field: str, limit: int, setting: str) -> str:
    """Checks that a text is not blank, not too long, and can be stored unchanged."""
    if not value.strip():
        raise Invalid(field, "must not be empty or blank")
    return part(value, field, limit, setting)


def part(value: str, field: str, limit: int, setting: str) -> str:
    """Checks a part of a text to search for, which may be blank."""
    storable(value, field)
    if len(value) > limit:
        raise TooLarge(field, f"has {len(value):,} characters; the limit is {limit:,} ({setting})")
    return value


def name(value: str, field: str, limits: LimitSettings) -> str:
    """Checks the name of a user, app, namespace, thread, kind, key or category. Returns it without surrounding
    blanks."""
    return checked_name(value, field, limits.name)


def line(value: str, field: str, limit: int, setting: str) -> str:
    """Checks a text of one line, such as a title. Returns it without surrounding blanks."""
    return checked_name(value, field, limit, setting)


def names(values: Any, fields: Sequence[str], limits: LimitSettings) -> dict[str, Any]:
    """Checks those `fields` of an object that hold a name. Returns the names without surrounding blanks."""
    items = ((field, getattr(values, field)) for field in fields)
    return {field: name(value, field, limits) for field, value in items if value is not None}


def categories(values: Sequence[str], limits: LimitSettings) -> tuple[str, ...]:
    """Checks the categories of one memory. Returns them without surrounding blanks; `one_form` comes last, because
    secrets are found by their case."""
    if len(values) > MAX_CATEGORIES:
        raise Invalid("categories", f"has {len(values)} entries; the limit is {MAX_CATEGORIES}")
    return tuple(name(category, "categories", limits) for category in values)


def one_form(values: Sequence[str]) -> tuple[str, ...]:
    """Returns the categories in their one form, each once."""
    return tuple(dict.fromkeys(map(category_name, values)))


def metadata(value: dict[str, Any], limits: LimitSettings) -> dict[str, Any]:
    """Checks that metadata is not too large and that all its values can be stored."""
    return json_object(value, "metadata", limits.metadata, "limits.metadata")


def json_object(value: dict[str, Any], field: str, limit: int, setting: str) -> dict[str, Any]:
    """Checks that a JSON object has at most `limit` bytes and that all its values can be stored."""
    # The size is checked first: one request can hold a million entries, and walking them blocks the server for seconds.
    try:
        size, strange = len(orjson.dumps(value)), None
    except TypeError as error:
        size, strange = _entries(value, limit), error
    _within(size, field, limit, setting)
    _storable_tree(value, field, depth=0)
    if strange is not None:
        try:
            size = len(exact_json.dumps(value))
        except TypeError as error:
            raise Invalid(field, f"must be a JSON object: {error}") from None
        _within(size, field, limit, setting)
    return value


def _within(size: int, field: str, limit: int, setting: str) -> None:
    if size > limit:
        raise TooLarge(field, f"has {size:,} bytes; the limit is {limit:,} ({setting})")


def _entries(value: dict[str, Any], most: int) -> int:
    """Counts the entries, each of which takes at least one byte. Stops counting above `most`."""
    count = 0
    pending: list[Any] = [value]
    while pending and count <= most:
        item = pending.pop()
        count += len(item)
        if count <= most:
            inside = item.values() if isinstance(item, dict) else item
            pending.extend(each for each in inside if isinstance(each, dict | list))
    return count


def _storable_tree(value: Any, field: str, depth: int) -> None:
    if depth > 32:
        raise TooLarge(field, "is nested more than 32 levels deep")
    if isinstance(value, str):
        storable(value, field)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Invalid(field, "must be a finite number")
    elif isinstance(value, dict):
        for key, item in value.items():
            storable(str(key), field)
            _storable_tree(item, f"{field}.{key}"[:100], depth + 1)
    elif isinstance(value, list):
        for item in value:
            _storable_tree(item, field, depth + 1)


def count(values: Sequence[object], field: str, limit: int, setting: str) -> None:
    """Checks that a list is not empty and not too long."""
    if not values:
        raise Invalid(field, "must have at least one entry")
    if len(values) > limit:
        raise TooLarge(field, f"has {len(values):,} entries; the limit is {limit:,} ({setting})")


def _filters(values: Sequence[object], field: str) -> None:
    # Each filter costs the database a lookup.
    if len(values) > MAX_FILTERS:
        raise TooLarge(field, f"has {len(values):,} entries; the limit is {MAX_FILTERS}")


def narrowing(query: QueryT, limits: LimitSettings) -> QueryT:
    """Checks the filters of a search or a list: their number, their names and their times. Returns the query with its
    names in the form in which they are stored."""
    for field in ("app_ids", "category_ids", "namespaces", "threads", "kinds", "categories"):
        _filters(getattr(query, field, ()), field)
    changes: dict[str, Any] = {
        field: tuple(name(value, field, limits) for value in getattr(query, field))
        for field in ("namespaces", "threads", "kinds", "categories")
    }
    changes |= moments(query, ("created_from", "created_to"))
    return replace(query, **changes | {"categories": one_form(changes["categories"])})


def moment(value: datetime, field: str) -> datetime:
    """Checks that a time has a UTC offset. Returns it in UTC: PostgreSQL refuses offsets of 16 hours and more."""
    if value.tzinfo is None:
        raise Invalid(field, "must carry an offset from UTC, such as 2026-01-31T12:00:00Z")
    try:
        return value.astimezone(UTC)
    except OverflowError:
        raise Invalid(field, "must lie within the years 1 to 9999 in UTC") from None


def moments(values: object, fields: Sequence[str]) -> dict[str, Any]:
    """Checks the times in these fields. Returns those that are set, in UTC."""
    times = {field: getattr(values, field) for field in fields}
    return {field: moment(at, field) for field, at in times.items() if at is not None}


def ttl(days: int | None, expires_at: datetime | None) -> None:
    """Checks an expiry that is given as a number of days or as a time, but not both."""
    if days is not None:
        if expires_at is not None:
            raise Invalid("ttl_days", "must be left out where expires_at is given")
        between(days, "ttl_days", 1, MAX_DAYS)


def between(value: int, field: str, low: int, high: int) -> int:
    """Checks that a number lies in a closed range."""
    if not low <= value <= high:
        raise Invalid(field, f"must be from {low:,} to {high:,}, not {value:,}")
    return value

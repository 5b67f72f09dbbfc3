"""Converts values of an old installation, or explains why they are unusable. All input is untrusted data."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

from openmemory.serialization import exact_json
from openmemory.serialization.surrogates import replace_in
from openmemory.serialization.timestamps import epoch_time

STATES = ("active", "paused", "archived", "deleted")


class Unusable(ValueError):
    """The reason why a value is unusable, such as `created_at: must be a time`. It never repeats the value."""


class CleanedJson(str):
    """A JSON object as text, in which null replaces `numbers` numbers that JSON cannot represent, such as NaN."""

    numbers: int

    def __new__(cls, text: str, numbers: int) -> Self:
        instance = super().__new__(cls, text)
        instance.numbers = numbers
        return instance


def identifier(name: str, value: Any) -> str:
    """A UUID in canonical form, from 32 hexadecimal digits, the canonical form itself, or 16 bytes."""
    try:
        return str(UUID(bytes=value) if isinstance(value, bytes) else UUID(str(value)))
    except ValueError:
        raise Unusable(f"{name}: must be a UUID") from None


def words(name: str, value: Any) -> str:
    """A string, with U+FFFD in place of halves of surrogate pairs and of invalid UTF-8."""
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    if not isinstance(value, str):
        raise Unusable(f"{name}: must be a string")
    return str(replace_in(value))


def text(name: str, value: Any) -> str:
    """A string that is not blank."""
    string = words(name, value)
    if not string.strip():
        raise Unusable(f"{name}: must not be empty")
    return string


def mapping(name: str, value: Any) -> str:
    """A JSON object as text, with exact numbers; null becomes an empty object. If Python wrote NaN or infinity, the
    result is `CleanedJson`."""
    if isinstance(value, str | bytes):
        try:
            value = json.loads(value)  # also accepts NaN and infinity as written by Python
        except (ValueError, RecursionError):
            raise Unusable(f"{name}: must be JSON") from None
    if value is None:
        return "{}"
    if not isinstance(value, dict):
        raise Unusable(f"{name}: must be a JSON object")
    try:
        finite_value, numbers = exact_json.finite(replace_in(value))
        json_text = exact_json.dumps(finite_value).decode()
    except (TypeError, RecursionError):
        raise Unusable(f"{name}: must be valid JSON without very deep nesting") from None
    return CleanedJson(json_text, numbers) if numbers else json_text


def state(name: str, value: Any) -> str:
    """A state, from the name or the value of the old enum, in upper or lower case."""
    member = str(value).rpartition(".")[2].lower()
    if member not in STATES:
        raise Unusable(f"{name}: must be one of {', '.join(STATES)}")
    return member


def moment(name: str, value: Any) -> str:
    """A time in UTC, in ISO 8601 with its offset. A missing offset means UTC; a number is the time since 1970."""
    try:
        if (since_1970 := epoch_time(value)) is not None:
            return since_1970.isoformat()
        timestamp = datetime.fromisoformat(words(name, value).strip())
        return (timestamp.replace(tzinfo=UTC) if timestamp.tzinfo is None else timestamp.astimezone(UTC)).isoformat()
    except (ValueError, OverflowError, OSError):
        raise Unusable(f"{name}: must be a time in ISO 8601, or seconds since 1970") from None


def names(value: Any) -> list[str]:
    """The names in a list, of which each may be an object with a name, or in a text: of JSON, or with commas."""
    if isinstance(value, str):
        value = _json_list(value) or value.split(",")
    if not isinstance(value, list):
        return []
    entries = (each.get("name") if isinstance(each, dict) else each for each in value)
    return list(dict.fromkeys(name for each in entries if isinstance(each, str) and (name := each.strip())))


def _json_list(text: str) -> list[Any] | None:
    try:
        document = json.loads(text) if text.lstrip().startswith("[") else None
    except (ValueError, RecursionError):
        return None
    return document if isinstance(document, list) else None


def flag(_: str, value: Any) -> int:
    """A boolean, as SQLite stores it."""
    return int(value not in (0, "0", False, "false", "False"))


def share(name: str, value: Any) -> float:
    """A number from 0 to 1."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise Unusable(f"{name}: must be a number from 0 to 1")
    return float(value)


def whole(name: str, value: Any) -> int:
    """A whole number."""
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > 2**53:
        raise Unusable(f"{name}: must be a whole number")
    return value

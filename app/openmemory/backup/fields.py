"""Reads the fields of an archive record, checks their types, and names the place in errors."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime
from typing import Any, cast
from uuid import UUID

from openmemory.backup.format import kind_of, malformed
from openmemory.backup.json_stream import RawRecord
from openmemory.memories.models import State
from openmemory.memories.schemas import MemoryCreate
from openmemory.serialization.exact_json import finite

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BARE = re.compile(r"[0-9a-fA-F]{32}")
_STATES = frozenset(state.value for state in State)
_LONGEST_TIME = 40


class Fields:
    """One record and its place in the archive."""

    __slots__ = ("mended", "place", "values")

    def __init__(self, place: str, values: Any) -> None:
        """
        Raises:
            BadArchive: it is not an object.
        """
        if not isinstance(values, dict):
            raise malformed(place, f"must be an object, not {kind_of(values)}")
        self.place = place
        self.mended: dict[str, int] = {}
        """Fields in which null replaces numbers that JSON cannot represent, such as NaN, with their count."""
        self.values: dict[str, Any] = values

    def text(self, name: str, default: str | None = None) -> str:
        """A string. It is required if there is no default. Null counts as missing."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, str):
            raise self.wrong(name, "a string", value)
        return value

    def optional_text(self, name: str) -> str | None:
        """A string or null."""
        value = self.values.get(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "a string or null", value)
        return value

    def id(self, name: str = "id") -> str:
        """A UUID in canonical form."""
        value = self.optional_id(name)
        if value is None:
            raise self.wrong(name, "a UUID", None)
        return value

    def optional_id(self, name: str) -> str | None:
        """A UUID in canonical form, or null."""
        value = self.values.get(name)
        return None if value is None else self._id(name, value)

    def ids(self, name: str) -> list[str]:
        """A list of UUIDs; empty if it is missing."""
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise self.wrong(name, "a list of UUIDs", value)
        return [self._id(f"{name}[{number}]", each) for number, each in enumerate(value)]

    def texts(self, name: str) -> list[str]:
        """A list of strings; empty if it is missing."""
        value = self.values.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self.wrong(name, "a list of strings", value)
        return value

    def memory(self, text: str) -> MemoryCreate:
        """A memory with this text and the record's fields, without times and categories."""
        return MemoryCreate(
            text=text,
            metadata=self.mapping("metadata"),
            namespace=self.text("namespace", "default"),
            thread_id=self.optional_text("thread_id"),
            kind=self.text("kind", "memory"),
            key=self.optional_text("key"),
            importance=self.optional_number("importance"),
        )

    def moment(self, name: str, default: str | None = None) -> str:
        """A time in UTC, in ISO 8601 as PostgreSQL accepts it. A time without an offset is taken as UTC."""
        value = self.optional_moment(name) or default
        if value is None:
            raise self.wrong(name, _TIME, None)
        return value

    def optional_moment(self, name: str) -> str | None:
        """A time as in `moment`, or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or len(value) > _LONGEST_TIME:
            raise self.wrong(name, _TIME, value)
        try:
            parsed = datetime.fromisoformat(value)
            parsed = parsed.replace(tzinfo=UTC) if parsed.tzinfo is None else parsed.astimezone(UTC)
        except (ValueError, OverflowError):
            raise malformed(f"{self.place}.{name}", f"must be {_TIME}") from None
        return parsed.isoformat()

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; empty if it is null or missing."""
        value = self.values.get(name)
        if value is None:
            return {}
        if not isinstance(value, dict):
            raise self.wrong(name, "an object", value)
        if not isinstance(self.values, RawRecord):
            return value
        kept, numbers = finite(value)
        if numbers:
            self.mended[name] = numbers
        return cast(dict[str, Any], kept)

    def flag(self, name: str, default: bool) -> bool:
        """True or false."""
        value = self.values.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.wrong(name, "true or false", value)
        return value

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number in a closed range."""
        value = self.values.get(name)
        if value is None and default is not None:
            return default
        if not isinstance(value, int) or isinstance(value, bool):
            raise self.wrong(name, "a whole number", value)
        if not low <= value <= high:
            raise malformed(f"{self.place}.{name}", f"must be from {low:,} to {high:,}")
        return value

    def optional_number(self, name: str) -> float | None:
        """A finite number or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise self.wrong(name, "a number or null", value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise malformed(f"{self.place}.{name}", "must be a finite number")
        return number

    def state(self, name: str, default: str | None = None) -> str:
        """A memory state."""
        value = self.optional_state(name) or default
        if value is None:
            raise self.wrong(name, _STATE, None)
        return value

    def optional_state(self, name: str) -> str | None:
        """A memory state, or null."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, str) or value not in _STATES:
            raise self.wrong(name, _STATE, value)
        return value

    def wrong(self, name: str, right: str, value: Any) -> Exception:
        """The error for a field with the wrong type. It does not repeat the value."""
        if value is None and name not in self.values:
            return malformed(f"{self.place}.{name}", f"is missing; it must be {right}")
        given = "" if isinstance(value, str) and right.startswith("one of") else f", not {kind_of(value)}"
        return malformed(f"{self.place}.{name}", f"must be {right}{given}")

    def _id(self, name: str, value: Any) -> str:
        if isinstance(value, str):
            lowered = value.lower()
            if _UUID.fullmatch(lowered):
                return lowered
            if _BARE.fullmatch(value):
                return str(UUID(value))
        raise malformed(f"{self.place}.{name}", f"must be a UUID, not {_given(value)}")


_TIME = "a time in ISO 8601, such as 2026-01-31T12:00:00Z"
_STATE = f"one of {', '.join(State)}"


def _given(value: Any) -> str:
    return "another string" if isinstance(value, str) else kind_of(value)

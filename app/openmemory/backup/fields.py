"""Reads the fields of an archive record, checks their types, and names the place in errors."""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, TypeVar, cast
from uuid import UUID

from openmemory.backup.format import kind_of, malformed
from openmemory.backup.json_stream import RawRecord
from openmemory.memories.fields import Archived, archived_as
from openmemory.memories.schemas import MemoryCreate
from openmemory.memories.state import State
from openmemory.schema.description import ArchiveColumn
from openmemory.serialization.exact_json import finite
from openmemory.serialization.timestamps import epoch_time

T = TypeVar("T")

Row = dict[str, Any]
"""The values of a record by the names of their columns. `place`: its number in its list."""

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
_BARE = re.compile(r"[0-9a-fA-F]{32}")
_MAX_TIME_LENGTH = 40
STATES = tuple(State)
_TIME = "a time in ISO 8601, such as 2026-01-31T12:00:00Z"


class Fields:
    """One record and its place in the archive. In every field null counts as missing."""

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
        """A string. It is required if there is no default."""
        return self._require(name, self._check_type(name, str, "a string"), "a string", default)

    def optional_text(self, name: str) -> str | None:
        """A string or None."""
        return self._check_type(name, str, "a string or null")

    def one_of(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        """One of some strings. It is required if there is no default."""
        value = self.optional_one_of(name, allowed) or default
        if value is None:
            raise self.wrong(name, f"one of {', '.join(allowed)}", None)
        return value

    def optional_one_of(self, name: str, allowed: Sequence[str]) -> str | None:
        """One of some strings, or None."""
        value = self.values.get(name)
        if value is None or value in allowed:
            return cast(str | None, value)
        right = f"one of {', '.join(allowed)}"
        if isinstance(value, str):
            raise malformed(f"{self.place}.{name}", f"must be {right}")
        raise self.wrong(name, right, value)

    def id(self, name: str = "id") -> str:
        """A UUID in canonical form."""
        return self._require(name, self.optional_id(name), "a UUID")

    def optional_id(self, name: str) -> str | None:
        """A UUID in canonical form, or None."""
        value = self.values.get(name)
        return None if value is None else self._id(name, value)

    def ids(self, name: str) -> list[str]:
        """A list of UUIDs; empty if it is missing."""
        values = self._check_type(name, list, "a list of UUIDs") or []
        return [self._id(f"{name}[{number}]", each) for number, each in enumerate(values)]

    def texts(self, name: str) -> list[str]:
        """A list of strings; empty if it is missing."""
        values = self._check_type(name, list, "a list of strings") or []
        if not all(isinstance(each, str) for each in values):
            raise self.wrong(name, "a list of strings", values)
        return values

    def moment(self, name: str, default: str | None = None) -> str:
        """A time in UTC, in ISO 8601 as PostgreSQL accepts it. A time without an offset is taken as UTC."""
        return self._require(name, self.optional_moment(name), _TIME, default)

    def optional_moment(self, name: str) -> str | None:
        """A time as in `moment`, or None."""
        try:
            if (since_1970 := epoch_time(self.values.get(name))) is not None:
                return since_1970.isoformat()
        except ValueError:
            raise malformed(f"{self.place}.{name}", f"must be {_TIME}") from None
        value = self._check_type(name, str, _TIME)
        if value is None:
            return None
        if len(value) > _MAX_TIME_LENGTH:
            raise self.wrong(name, _TIME, value)
        try:
            moment = datetime.fromisoformat(value)
            moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
        except (ValueError, OverflowError):
            raise malformed(f"{self.place}.{name}", f"must be {_TIME}") from None
        return moment.isoformat()

    def mapping(self, name: str) -> dict[str, Any]:
        """An object; empty if it is missing."""
        value = self._check_type(name, dict, "an object") or {}
        if not isinstance(self.values, RawRecord):
            return value
        finite_value, numbers = finite(value)
        if numbers:
            self.mended[name] = numbers
        return cast(dict[str, Any], finite_value)

    def flag(self, name: str, default: bool = False) -> bool:
        """True or false."""
        value = self._check_type(name, bool, "true or false")
        return default if value is None else value

    def whole(self, name: str, low: int, high: int, default: int | None = None) -> int:
        """A whole number in a closed range."""
        value = self._require(name, self._check_type(name, int, "a whole number"), "a whole number", default)
        if not low <= value <= high:
            raise malformed(f"{self.place}.{name}", f"must be from {low:,} to {high:,}")
        return value

    def optional_whole(self, name: str, low: int, high: int) -> int | None:
        """A whole number in a closed range, or None."""
        return None if self.values.get(name) is None else self.whole(name, low, high)

    def data(self, name: str) -> bytes:
        """Bytes, in base64."""
        try:
            return base64.b64decode(self.text(name), validate=True)
        except (binascii.Error, ValueError):
            raise malformed(f"{self.place}.{name}", "must be base64") from None

    def optional_number(self, name: str) -> float | None:
        """A finite number or None."""
        value = self._check_type(name, (int, float), "a number or null")
        if value is None:
            return None
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        if not math.isfinite(number):
            raise malformed(f"{self.place}.{name}", "must be a finite number")
        return number

    def wrong(self, name: str, right: str, value: Any) -> Exception:
        """The error for a field with the wrong type. It does not repeat the value."""
        if value is None and name not in self.values:
            return malformed(f"{self.place}.{name}", f"is missing; it must be {right}")
        return malformed(f"{self.place}.{name}", f"must be {right}, not {kind_of(value)}")

    def _check_type(self, name: str, kind: type[T] | tuple[type[T], ...], right: str) -> T | None:
        """The value, or None if it is missing."""
        value = self.values.get(name)
        if value is not None and (not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool)):
            raise self.wrong(name, right, value)
        return value

    def _require(self, name: str, value: T | None, right: str, default: T | None = None) -> T:
        if value is None:
            value = default
        if value is None:
            raise self.wrong(name, right, None)
        return value

    def _id(self, name: str, value: Any) -> str:
        if isinstance(value, str):
            canonical = value.lower()
            if _UUID.fullmatch(canonical):
                return canonical
            if _BARE.fullmatch(value):
                return str(UUID(value))
        kind = "another string" if isinstance(value, str) else kind_of(value)
        raise malformed(f"{self.place}.{name}", f"must be a UUID, not {kind}")


NEW = [one.name for one in archived_as(Archived.CONTENT) if one.name != "content" and one.type != "timestamptz"]
"""The columns of a memory that are checked as those of a new one, besides its text and times."""


def new_memory(text: str, row: Row) -> MemoryCreate:
    """Returns a memory with this text, as if it were new, without times and categories."""
    return MemoryCreate(text, **{name: row[name] for name in NEW})


def reader(columns: Sequence[ArchiveColumn], now: str) -> Callable[[Fields, int], Row]:
    """Returns a function that reads the row of a record with this number. Columns that an import computes are None."""
    empty: Row = dict.fromkeys(("place", *(one.name for one in columns)))
    same = {one.name: one.missing for one in columns if one.type == "timestamptz" and one.missing in empty}
    optional, required = list[_Reading](), list[_Reading]()
    for one in columns:
        if one.sql is not None:
            null = one.type not in _COLLECTIONS and (one.missing is None or one.name in same)
            (optional if null else required).append(_reading(one, now, null=null))

    def row_of(fields: Fields, number: int) -> Row:
        row, values = empty.copy(), fields.values
        row["place"] = number
        for name, method, arguments in required:
            row[name] = method(fields, name, *arguments)
        for name, method, arguments in optional:
            if values.get(name) is not None:
                row[name] = method(fields, name, *arguments)
        for name, other in same.items():
            row[name] = row[name] or row[other]
        return row

    return row_of


_Reading = tuple[str, Callable[..., Any], tuple[Any, ...]]
"""The name of a column, the method that reads it, and further arguments."""


def _reading(column: ArchiveColumn, now: str, *, null: bool) -> _Reading:
    kind, arguments = column.type, column.allowed or _RANGES.get(column.type, ())
    if kind in _COLLECTIONS:
        return column.name, _COLLECTIONS[kind], ()
    if kind == "memory_state" or (kind == "text" and arguments):
        kind, arguments = "choice", (arguments or STATES,)
    if null:
        return column.name, _OPTIONAL.get(kind) or _REQUIRED[kind], arguments
    default = now if column.missing == "now" and kind == "timestamptz" else column.missing
    return column.name, _REQUIRED[kind], arguments if default is ... else (*arguments, default)


_RANGES = {"integer": (-(2**31), 2**31 - 1), "bigint": (-(2**63), 2**63 - 1)}
_COLLECTIONS: dict[str, Callable[..., Any]] = {"jsonb": Fields.mapping, "uuid[]": Fields.ids, "text[]": Fields.texts}
_REQUIRED: dict[str, Callable[..., Any]] = {
    "uuid": Fields.id, "text": Fields.text, "choice": Fields.one_of, "timestamptz": Fields.moment,
    "integer": Fields.whole, "bigint": Fields.whole, "boolean": Fields.flag, "bytea": Fields.data,
}  # fmt: skip
_OPTIONAL: dict[str, Callable[..., Any]] = {
    "uuid": Fields.optional_id, "text": Fields.optional_text, "choice": Fields.optional_one_of,
    "timestamptz": Fields.optional_moment, "double precision": Fields.optional_number,
}  # fmt: skip
"""Each table maps the type of a column to the method that reads it. A missing value is an empty collection in the first
table, an error or a default in the second, and null in the third."""

"""Parses search filters: validates the JSON from clients and builds a tree. Has no side effects.

The language is that of mem0: conditions on fields, combined by AND, OR and NOT (in upper or lower case).

    {"AND": [{"metadata.project": "webshop"}, {"NOT": [{"kind": "note"}]}, {"created_at": {"gte": "2026-01-31"}}]}

- A field with a value tests equality, with a list it tests "one of these", and with "*" it tests "exists". With an
  object of operators, all of them must hold. An object with several entries is their AND. NOT of a list is "none of
  these".
- `metadata.a.b` descends into objects. `{"metadata": {"a": …}}` is the same as `{"metadata.a": …}`.
- A missing value equals only null, so `ne`, `nin` and NOT are true for it. `exists` means neither missing nor null.
- Numbers compare with numbers, and times with ISO 8601 texts (`gt`, `gte`, `lt`, `lte`). A time without an offset is
  of the time zone of the request, in the metadata of UTC. A date is its whole day: `gte` and `lte` include it, `gt` and
  `lt` do not. `contains` searches for a substring of a text, or for an entry of a list in the metadata.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, datetime
from enum import StrEnum
from typing import Any
from zoneinfo import ZoneInfo

from openmemory.errors import Invalid
from openmemory.identity.names import category_name, storable
from openmemory.search.query.filter_values import (
    ALIASES,
    METADATA,
    MOMENTS,
    OWN,
    RANGED,
    TEXTS,
    FieldKind,
    Scalar,
    is_day,
)
from openmemory.serialization import exact_json
from openmemory.serialization.zones import UTC_ZONE, day_end, day_start, placed

MAX_DEPTH = 5
"""The maximum nesting depth of AND, OR and NOT."""
MAX_CONDITIONS = 50
"""The maximum number of comparisons in a filter."""
MAX_VALUES = 100
"""The maximum number of entries in a list for `in` or `nin`."""
MAX_DAYS = 25
"""The maximum number of entries in such a list if dates are among them: each is compared at both ends."""
MAX_TEXT = 4_000
"""The maximum number of characters in a text to compare with."""
MAX_PARTS = 32
"""The maximum number of names in a path into the metadata, which is not nested deeper."""


class Operator(StrEnum):
    """The comparison operators. `ne`, `nin` and `*` are expressed by other operators and `Not`."""

    EQ = "eq"
    IN = "in"
    GT = "gt"
    GTE = "gte"
    LT = "lt"
    LTE = "lte"
    CONTAINS = "contains"
    ICONTAINS = "icontains"
    EXISTS = "exists"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One comparison, which is true or false and never unknown.

    `path` contains the names that lead into `metadata`. `values` contains one value, for IN one or more, for EXISTS
    none.
    """

    field: str
    operator: Operator
    values: tuple[Scalar, ...] = ()
    path: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class All:
    """True if all parts are true."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Either:
    """True if at least one part is true."""

    parts: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Not:
    """True if the part is false."""

    part: Node


Node = Comparison | All | Either | Not

FIELDS = (*OWN, "metadata.NAME")
"""The fields that a condition may test."""


def parsed(value: Any, field: str = "filter", *, zone: ZoneInfo = UTC_ZONE) -> Node | None:
    """Parses the JSON of a filter into a tree. Returns None for null and for an empty object, which match everything.
    `zone`: that of dates, and of times without an offset.

    Raises:
        Invalid: an unknown field or operator, a value of a wrong type, too deep, or too many conditions; the message
            begins with the path inside the filter and names what would be valid.
    """
    if value is None or value == {}:
        return None
    return _Parser(zone).node(value, field, depth=0)


def read(text: str | None, field: str = "filter", *, zone: ZoneInfo = UTC_ZONE) -> Node | None:
    """Parses a filter from JSON text.

    Raises:
        Invalid: the text is not JSON, or the filter is invalid as in `parsed`.
    """
    if text is None or not text.strip():
        return None
    storable(text, field)
    try:
        value = exact_json.loads(text)
    except (ValueError, RecursionError) as error:
        raise Invalid(field, f"is not valid JSON: {str(error)[:100]}") from None
    return parsed(value, field, zone=zone)


class _Parser:
    """Parses one filter and counts its conditions."""

    def __init__(self, zone: ZoneInfo) -> None:
        self._zone = zone
        self._conditions = 0

    def node(self, value: Any, where: str, depth: int) -> Node:
        if not isinstance(value, Mapping) or not value:
            raise Invalid(where, 'must be an object of conditions, such as {"metadata.project": "webshop"}')
        return _all([self._entry(str(name), part, f"{where}.{_shorten(name)}", depth) for name, part in value.items()])

    def _entry(self, name: str, value: Any, where: str, depth: int) -> Node:
        match name.upper():
            case "AND":
                return _all(self._parts(value, where, depth + 1))
            case "OR":
                return _either(self._parts(value, where, depth + 1))
            case "NOT":
                # NOT of a list means none of them, as in mem0.
                return Not(_either(self._parts([value] if isinstance(value, Mapping) else value, where, depth + 1)))
        if name == "metadata":
            if not isinstance(value, Mapping) or not value:
                raise Invalid(where, 'must be an object of names and values, such as {"project": "webshop"}')
            inside = [(f"metadata.{key}", part, f"{where}.{_shorten(key)}") for key, part in value.items()]
            return _all([self._conditions_on(*each) for each in inside])
        return self._conditions_on(name, value, where)

    def _parts(self, value: Any, where: str, depth: int) -> list[Node]:
        if depth > MAX_DEPTH:
            raise Invalid(where, f"is nested more than {MAX_DEPTH} levels of AND, OR and NOT deep")
        if not isinstance(value, list) or not value:
            raise Invalid(where, "must be a list of one condition or more")
        return [self.node(part, f"{where}[{number}]", depth) for number, part in enumerate(value)]

    def _conditions_on(self, name: str, value: Any, where: str) -> Node:
        name = ALIASES.get(name, name)
        path: tuple[str, ...] = ()
        if name.startswith("metadata."):
            storable(name, where)
            path = tuple(name.split(".")[1:])
            if not all(path) or len(path) > MAX_PARTS:
                raise Invalid(where, f"must name what to look at, such as metadata.project; {MAX_PARTS} names at most")
            # Texts in the metadata belong to no time zone.
            about = _About("metadata", path, METADATA, UTC_ZONE)
        elif name in OWN:
            about = _About(name, path, OWN[name], self._zone)
        else:
            raise Invalid(where, f"is not a known field; valid are {', '.join(FIELDS)}, and AND, OR, NOT")
        if value == "*":
            value = {"exists": True}
        elif isinstance(value, list):
            value = {"in": value}
        elif not isinstance(value, Mapping):
            self._count(where)
            return _comparison(about, "eq", value, where)
        if not value:
            raise Invalid(where, f"must hold an operator; valid are {', '.join(about.kind.operators)}")
        tests = []
        for operator, operand in value.items():
            at = f"{where}.{_shorten(operator)}"
            self._count(at)
            if operator not in about.kind.operators:
                raise Invalid(at, f"is not an operator of this field; valid are {', '.join(about.kind.operators)}")
            tests.append(_comparison(about, operator, operand, at))
        return _all(tests)

    def _count(self, where: str) -> None:
        self._conditions += 1
        if self._conditions > MAX_CONDITIONS:
            raise Invalid(where, f"is one condition too many; the limit is {MAX_CONDITIONS}")


@dataclass(frozen=True, slots=True)
class _About:
    """The subject of a condition: the field, the path, the kind of value, and the time zone of dates."""

    field: str
    path: tuple[str, ...]
    kind: FieldKind
    zone: ZoneInfo

    def test(self, operator: Operator, *values: Scalar) -> Comparison:
        return Comparison(self.field, operator, values, self.path)


def _comparison(about: _About, operator: str, operand: Any, where: str) -> Node:
    if operator in _NEGATED:
        return Not(_comparison(about, _NEGATED[operator], operand, where))
    if operator == "exists" or (operator == "eq" and operand is None):
        if operator == "exists" and not isinstance(operand, bool):
            raise Invalid(where, "must be true or false")
        exists = about.test(Operator.EXISTS)
        return exists if operand else Not(exists)
    if about.field == "category":
        operand = _category_names(operand)
    if operator == "in":
        if not isinstance(operand, list) or not 1 <= len(operand) <= MAX_VALUES:
            raise Invalid(where, f"must be a list of 1 to {MAX_VALUES} values")
        values = [_checked(about, about.kind, one, f"{where}[{number}]") for number, one in enumerate(operand)]
        if about.kind is MOMENTS and any(map(is_day, operand)):
            if len(operand) > MAX_DAYS:
                raise Invalid(where, f"must be a list of at most {MAX_DAYS} values if one is a date")
            return _either([_comparison(about, "eq", one, where) for one in operand])
        return about.test(Operator.IN, *values)
    if operand == "" and operator in ("contains", "icontains"):
        raise Invalid(where, "must not be empty")
    kind = _of(about, operator)
    value = _checked(about, kind, operand, where)
    if kind in (MOMENTS, RANGED) and is_day(operand):
        return _day_comparison(about, operator, date.fromisoformat(operand))
    return about.test(Operator(operator), value)


def _day_comparison(about: _About, operator: str, day: date) -> Node:
    """A comparison with a whole day."""
    first, last = day_start(day, about.zone), day_end(day, about.zone)
    match operator:
        case "gt" | "lte":
            return about.test(Operator(operator), last)
        case "gte" | "lt":
            return about.test(Operator(operator), first)
    return All((about.test(Operator.GTE, first), about.test(Operator.LTE, last)))


def _category_names(operand: Any) -> Any:
    """The names of categories in the form in which they are stored."""
    if isinstance(operand, list):
        return [category_name(one) if isinstance(one, str) else one for one in operand]
    return category_name(operand) if isinstance(operand, str) else operand


_NEGATED = {"ne": "eq", "nin": "in"}


def _of(about: _About, operator: str) -> FieldKind:
    """The kind of value that the operator compares the field with."""
    if about.field != "metadata":
        return about.kind
    if operator == "contains":
        return METADATA  # a list may contain numbers
    if operator == "icontains":
        return TEXTS
    return METADATA if operator == "eq" else RANGED


def _checked(about: _About, kind: FieldKind, value: Any, where: str) -> Scalar:
    scalar = kind.checked(value)
    if isinstance(scalar, datetime):
        return placed(scalar, about.zone)
    if scalar is None:
        raise Invalid(where, f"must be {kind.values}")
    if isinstance(scalar, str):
        storable(scalar, where)
        if len(scalar) > MAX_TEXT:
            raise Invalid(where, f"has {len(scalar):,} characters; the limit is {MAX_TEXT:,}")
    return scalar


def _all(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _either(parts: list[Node]) -> Node:
    return parts[0] if len(parts) == 1 else Either(tuple(parts))


def _shorten(name: Any) -> str:
    """Shortens a name for use in a message."""
    text = str(name)
    return text if len(text) <= 60 else f"{text[:60]}…"

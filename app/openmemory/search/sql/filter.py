"""Converts filters to SQL: a predicate over `Memory`. Has no side effects. All client input is in bound parameters.

The text of the predicate depends only on the filter's shape: its fields, operators and types of values, and how many of
them, but not the values themselves. So each shape needs only one compiled statement.

A comparison with a missing value is null, which counts as false. AND and OR keep it so, and NOT is `IS NOT TRUE`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import lru_cache, wraps
from itertools import count
from typing import Any, NamedTuple, ParamSpec, TypeVar

from sqlalchemy import (
    ColumnElement,
    DateTime,
    Float,
    Text,
    Uuid,
    and_,
    bindparam,
    case,
    cast,
    func,
    literal_column,
    or_,
    select,
)
from sqlalchemy.dialects.postgresql import ARRAY, JSONB

from openmemory.access.models import App
from openmemory.memories.fields import FIELDS
from openmemory.memories.listing.criteria import like_pattern
from openmemory.memories.models import HAS_METADATA, Category, Memory, MemoryCategory
from openmemory.search.query.filter_values import ISO
from openmemory.search.query.filters import All, Comparison, Either, Node, Not, Operator
from openmemory.serialization import exact_json
from openmemory.sources.models import WITH_PATHS, Source

P = ParamSpec("P")
T = TypeVar("T")

PATH, LANGUAGE, SYMBOL, SPEAKER = "path of a file", "language of a file", "symbol of code", "speaker"
"""Fields that only passages have, and no filter can name."""

MAX_INDEXED_VALUES = 16
"""The maximum number of values in a list that are looked up in the index one by one."""

Shape = tuple[Any, ...]
"""A filter without its values: hashable, and equal for filters that share a statement."""


USUAL = 40
"""The maximum number of names and values in a filter whose statements are cached. Those of larger filters take
megabytes, and a client could send hundreds of different ones. Compiling one takes 10 to 50 ms."""


class Filtering(NamedTuple):
    """A filter with the parameters of its statement: `predicate(shape)` uses `binds`, and `caller_user_id`."""

    shape: Shape
    binds: dict[str, Any]


def is_usual(shape: Shape) -> bool:
    """Returns True if statements with a filter of this shape are small enough to be cached."""
    return _size(shape) <= USUAL


def by_shape(make: Callable[P, T]) -> Callable[P, T]:
    """Caches the result for a shape, which is the last argument, if it `is_usual`. Otherwise it is computed each
    time."""
    cached = lru_cache(maxsize=64)(make)

    @wraps(make)
    def wrapper(*arguments: P.args, **keywords: P.kwargs) -> T:
        return (cached if is_usual(arguments[-1]) else make)(*arguments, **keywords)  # type: ignore[arg-type]

    return wrapper


def _size(shape: Shape) -> int:
    match shape:
        case ():
            return 0
        case _Leaf():
            return 1 + shape.parts + (shape.values if shape.is_indexed else 0)
        case (kind, part) if kind is Not:
            return _size(part)
        case (_, parts):
            return sum(map(_size, parts))
    raise AssertionError(f"no shape of a filter: {shape}")


class _Leaf(NamedTuple):
    """The shape of one comparison. The names of its parameters begin with `name`."""

    name: str
    field: str
    operator: Operator
    values: int
    parts: int
    of: str
    """The type of the compared value: text, time or other."""

    @property
    def is_indexed(self) -> bool:
        """Returns True if an index of the metadata may answer it: each value of a longer list would need its own
        lookup."""
        few = self.operator is Operator.EQ or (self.operator is Operator.IN and self.values <= MAX_INDEXED_VALUES)
        return few and self.field == "metadata"


def filtering(tree: Node | None) -> Filtering:
    """The shape and the parameters of a filter. None is the filter that everything matches."""
    if tree is None:
        return Filtering((), {})
    binds: dict[str, Any] = {}
    return Filtering(_shape(tree, binds, count()), binds)


def predicate(shape: Shape, rows: Any = Memory) -> ColumnElement[bool]:
    """The predicate for rows that match a filter of this shape. Only memories have categories and indexed metadata."""
    match shape:
        case ():
            return literal_column("true")
        case _Leaf():
            return _metadata(shape, rows) if shape.field == "metadata" else _own(shape, rows)
        case (type() as kind, parts) if kind is All:
            return and_(*(predicate(part, rows) for part in parts))
        case (type() as kind, parts) if kind is Either:
            return or_(*(predicate(part, rows) for part in parts))
        case (_, part):
            return predicate(part, rows).is_not(literal_column("true"))
    raise AssertionError(f"no shape of a filter: {shape}")


def _shape(node: Node, binds: dict[str, Any], numbers: Iterator[int]) -> Shape:
    match node:
        case Not(part):
            return (Not, _shape(part, binds, numbers))
        case All(parts) | Either(parts):
            return (type(node), tuple([_shape(part, binds, numbers) for part in parts]))
        case Comparison():
            leaf = _leaf(node, f"filter_{next(numbers)}")
            binds.update(_metadata_binds(leaf, node) if node.field == "metadata" else _own_binds(leaf, node))
            return leaf


def _leaf(test: Comparison, name: str) -> _Leaf:
    first = test.values[0] if test.values else None
    of = "text" if isinstance(first, str) else "time" if isinstance(first, datetime) else "other"
    leaf = _Leaf(name, test.field, test.operator, len(test.values), len(test.path), of)
    # A list that is one parameter has the same shape at any length.
    return leaf if leaf.is_indexed else leaf._replace(values=MAX_INDEXED_VALUES + 1)


# The memory's own fields.

_TYPES: dict[str, Any] = {"uuid": Uuid(), "double precision": Float(), "timestamptz": DateTime(timezone=True)}
_TYPE_OF = {one.name: _TYPES.get(one.type, Text()) for one in FIELDS}


def _own_binds(leaf: _Leaf, test: Comparison) -> dict[str, Any]:
    match test.operator:
        case Operator.EXISTS:
            return {}
        case Operator.EQ | Operator.IN:
            return {leaf.name: test.values[0] if leaf.field == PATH else list(test.values)}
        case Operator.CONTAINS | Operator.ICONTAINS:
            return {leaf.name: like_pattern(str(test.values[0]))}
    return {leaf.name: test.values[0]}


def _own(leaf: _Leaf, rows: Any) -> ColumnElement[bool]:
    if leaf.field == "app":
        mine = select(App.id).where(App.owner_id == bindparam("caller_user_id"), _condition(leaf, App.name))
        condition: ColumnElement[bool] = rows.app_id.in_(mine)
        return condition
    if leaf.field == SYMBOL:
        # The first part is that of the index.
        some: ColumnElement[bool] = rows.symbols != literal_column("'{}'::text[]")
        return and_(some, rows.symbols.contains(bindparam(leaf.name, type_=ARRAY(Text))))
    if leaf.field in (PATH, LANGUAGE):
        begins: Any = func.starts_with(Source.locator, bindparam(leaf.name, type_=Text()))
        matches = begins if leaf.field == PATH else Source.language == func.any(bindparam(leaf.name, type_=ARRAY(Text)))
        of_user = Source.user_id == bindparam("caller_user_id"), Source.kind.in_(WITH_PATHS)
        of_files: ColumnElement[bool] = rows.source_id.in_(select(Source.id).where(*of_user, matches))
        return of_files
    if leaf.field in ("category", "category_id"):
        assignments = select(MemoryCategory.memory_id).where(
            MemoryCategory.memory_id == rows.id, MemoryCategory.user_id == bindparam("caller_user_id")
        )
        if leaf.field == "category_id":
            assignments = assignments.where(_condition(leaf, MemoryCategory.category_id))
        elif leaf.operator is not Operator.EXISTS:
            assignments = assignments.join(Category, Category.id == MemoryCategory.category_id)
            assignments = assignments.where(_condition(leaf, Category.name))
        return assignments.correlate(rows).exists()
    return _condition(leaf, getattr(rows, leaf.field))


def _condition(leaf: _Leaf, column: Any) -> ColumnElement[bool]:
    kind = _TYPE_OF.get(leaf.field, Text())
    condition: ColumnElement[bool]
    match leaf.operator:
        case Operator.EXISTS:
            condition = column.is_not(None)
        case Operator.EQ | Operator.IN:
            condition = column == func.any(bindparam(leaf.name, type_=ARRAY(kind)))
        case Operator.CONTAINS:
            condition = column.like(bindparam(leaf.name, type_=Text()))
        case Operator.ICONTAINS:
            condition = column.ilike(bindparam(leaf.name, type_=Text()))
        case _:
            condition = column.op(_SIGNS[leaf.operator], is_comparison=True)(bindparam(leaf.name, type_=kind))
    return condition


_SIGNS = {Operator.GT: ">", Operator.GTE: ">=", Operator.LT: "<", Operator.LTE: "<="}


# The metadata.

_IS_TIME: ColumnElement[Any] = literal_column(f"'^{ISO}$'")


def _metadata_binds(leaf: _Leaf, test: Comparison) -> dict[str, Any]:
    name, path = leaf.name, test.path
    if leaf.is_indexed:
        return {f"{name}_{number}": _document(path, value) for number, value in enumerate(test.values)}
    binds: dict[str, Any] = {f"{name}_in_{number}": part for number, part in enumerate(path)}
    match test.operator:
        case Operator.EXISTS:
            return binds
        case Operator.IN:
            return binds | {name: [exact_json.for_jsonb(value) for value in test.values]}
        case Operator.CONTAINS | Operator.ICONTAINS:
            binds |= {f"{name}_0": _document(path, [test.values[0]])}
            return binds | ({f"{name}_like": like_pattern(str(test.values[0]))} if leaf.of == "text" else {})
    value = test.values[0]
    if isinstance(value, datetime):
        return binds | {name: value, f"{name}_day": _nearest_day(value, leaf.operator)}
    return binds | {name: exact_json.for_jsonb(value)}


def _metadata(leaf: _Leaf, rows: Any) -> ColumnElement[bool]:
    if leaf.is_indexed:
        return or_(*(_holds(f"{leaf.name}_{number}", rows) for number in range(leaf.values)))
    value: ColumnElement[Any] = rows.metadata_.expression
    for number in range(leaf.parts):
        # Unlike `#>`, this descends into objects only, as `@>` does.
        value = value.op("->", return_type=JSONB())(bindparam(f"{leaf.name}_in_{number}", type_=Text()))
    match leaf.operator:
        case Operator.EXISTS:
            # SQL null for a missing value, the text 'null' for JSON null.
            return func.jsonb_typeof(value) != literal_column("'null'")
        case Operator.IN:
            return value == func.any(cast(bindparam(leaf.name, type_=ARRAY(Text)), ARRAY(JSONB)))
        case Operator.CONTAINS | Operator.ICONTAINS:
            return _has_part(leaf, value, rows)
    return _in_range(leaf, value)


def _has_part(leaf: _Leaf, value: ColumnElement[Any], rows: Any) -> ColumnElement[bool]:
    """True if a text contains a substring, or a list an entry."""
    entry = _holds(f"{leaf.name}_0", rows)
    if leaf.of != "text":
        return entry
    text, part = _text(value), bindparam(f"{leaf.name}_like", type_=Text())
    is_text = func.jsonb_typeof(value) == literal_column("'string'")
    if leaf.operator is Operator.ICONTAINS:
        return and_(is_text, text.ilike(part))
    return or_(entry, and_(is_text, text.like(part)))


def _in_range(leaf: _Leaf, value: ColumnElement[Any]) -> ColumnElement[bool]:
    """True if a number or a time lies on the right side of another."""
    condition: ColumnElement[bool]
    if leaf.of == "time":
        # Only a valid time is cast: one invalid text would fail the whole statement. Comparing the day first takes a
        # fifth of the time.
        kind, text = DateTime(timezone=True), _text(value)
        day = func.left(text, literal_column("10")).collate("C")
        near = day.op(_SIGNS[leaf.operator][0] + "=")(bindparam(f"{leaf.name}_day", type_=Text()))
        time: ColumnElement[Any] = case((and_(near, text.op("~")(_IS_TIME)), cast(text, kind)))
        condition = time.op(_SIGNS[leaf.operator], is_comparison=True)(bindparam(leaf.name, type_=kind))
        return condition
    number = cast(bindparam(leaf.name, type_=Text()), JSONB())
    condition = value.op(_SIGNS[leaf.operator], is_comparison=True)(number)
    return and_(func.jsonb_typeof(value) == literal_column("'number'"), condition)


def _text(value: ColumnElement[Any]) -> ColumnElement[Any]:
    return value.op("#>>", return_type=Text())(literal_column("'{}'::text[]"))


def _nearest_day(moment: datetime, operator: Operator) -> str:
    """The first or last date that can appear in a matching time's text, whatever its offset: an offset is less than a
    day."""
    try:
        day = moment.date() + timedelta(days=-1 if operator in (Operator.GT, Operator.GTE) else 1)
    except OverflowError:
        day = moment.date()
    return day.isoformat()


def _holds(name: str, rows: Any) -> ColumnElement[bool]:
    """True if the metadata contains a document, looked up in an index."""
    document = cast(bindparam(name, type_=Text()), JSONB())
    return and_(HAS_METADATA, rows.metadata_.op("@>", is_comparison=True)(document))


def _document(path: tuple[str, ...], value: Any) -> str:
    for name in reversed(path):
        value = {name: value}
    return exact_json.for_jsonb(value)

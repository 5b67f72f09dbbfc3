"""Filters in SQL against a plain model of them in Python, over random memories."""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import select, text

from openmemory.memories.models import Memory
from openmemory.search.query.filter_values import ISO
from openmemory.search.query.filters import parsed
from openmemory.search.sql.filter import filtering, predicate
from openmemory.serialization import exact_json
from openmemory.services import Services

MISSING = object()
NAMES = ["a", "b", "é", "a b", "0", "%", "'"]
TIMES = [
    "2026-01-31", "2026-01-31T12:00:00Z", "2026-01-31T13:00:00+02:00", "2026-01-31 12:00", "2024-02-29",
    "2026-01-30T23:00:00-14:00", "2026-02-01T01:00:00+14:00",
    "2026-01-31T12:00:00.000001Z", "0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00", "2026-01-31T12:00+0530",
]  # fmt: skip
NO_TIMES = [
    "2026-02-30",
    "2023-02-29",
    "2026-13-01",
    "20260131",
    "0000-01-01",
    "2026-01-31T24:00",
    "2026-01-31x",
    "٢٠٢٦-01-31",
]
TEXTS = st.one_of(st.sampled_from([*TIMES, *NO_TIMES, "*", "null", "1"]), st.text("aAb%_\\'\"é 日😀", max_size=4))
NUMBERS = st.one_of(
    st.integers(-3, 3),
    st.sampled_from([0.5, 1.0, -1.5, 1e23, 10**23, 10**400, -0.0, 0.1, 2**63, 1e308]),
)
SCALARS = st.one_of(TEXTS, NUMBERS, st.booleans())
VALUES = st.recursive(
    st.one_of(SCALARS, st.none()),
    lambda inside: st.one_of(st.lists(inside, max_size=3), st.dictionaries(st.sampled_from(NAMES), inside, max_size=3)),
    max_leaves=4,
)
METADATA = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=3)
MOMENTS = st.sampled_from(TIMES[:8])


@st.composite
def memories(draw: st.DrawFn) -> dict[str, Any]:
    """One memory."""
    return {
        "metadata": draw(METADATA),
        "namespace": draw(st.sampled_from(["default", "a%", "a_"])),
        "kind": draw(st.sampled_from(["memory", "note"])),
        "thread_id": draw(st.sampled_from([None, "t", "T", "\\"])),
        "key": draw(st.sampled_from([None, "k", "é"])),
        "importance": draw(st.sampled_from([None, 0.0, 0.25, 1.0])),
        "created_at": draw(MOMENTS),
        "category": draw(st.sets(st.sampled_from(["food", "Food", "work"]), max_size=2)),
        "app": draw(st.sampled_from(["claude", "cursor"])),
    }


def operators(
    equal: st.SearchStrategy[Any], ranged: st.SearchStrategy[Any] | None, part: st.SearchStrategy[Any] | None
) -> st.SearchStrategy[Any]:
    """What may stand behind a field with such values."""
    listed = st.lists(equal, min_size=1, max_size=20)
    given: list[st.SearchStrategy[tuple[str, Any]]] = [
        st.tuples(st.sampled_from(["eq", "ne"]), st.one_of(equal, st.none())),
        st.tuples(st.sampled_from(["in", "nin"]), listed),
        st.tuples(st.just("exists"), st.booleans()),
    ]
    if ranged is not None:
        given.append(st.tuples(st.sampled_from(["gt", "gte", "lt", "lte"]), ranged))
    if part is not None:
        given.append(st.tuples(st.just("contains"), part))
        given.append(st.tuples(st.just("icontains"), part.filter(lambda value: isinstance(value, str))))
    several = st.lists(st.one_of(given), min_size=1, max_size=2).map(dict)
    return st.one_of(several, equal, listed, st.just("*"), st.none())


PARTS = TEXTS.filter(bool)
CONDITIONS = st.one_of(
    st.tuples(
        st.lists(st.sampled_from(NAMES), min_size=1, max_size=3).map(lambda path: ".".join(["metadata", *path])),
        operators(
            SCALARS,
            st.one_of(NUMBERS, MOMENTS),
            st.one_of(PARTS, NUMBERS, st.booleans()),
        ),
    ),
    st.tuples(
        st.sampled_from(["namespace", "kind", "thread_id", "key", "category", "app"]),
        operators(st.sampled_from(["default", "note", "t", "k", "food", "work", "claude", "é", "%"]), None, PARTS),
    ),
    st.tuples(st.just("importance"), operators(st.sampled_from([0, 0.25, 0.5, 1]), st.sampled_from([0, 0.25]), None)),
    st.tuples(st.just("created_at"), operators(MOMENTS, MOMENTS, None)),
)
FILTERS = st.recursive(
    st.lists(CONDITIONS, min_size=1, max_size=2).map(dict),
    lambda inside: st.one_of(
        st.tuples(st.sampled_from(["AND", "and", "OR", "or", "NOT", "not"]), st.lists(inside, min_size=1, max_size=3)),
        st.tuples(st.sampled_from(["NOT", "not"]), inside),
    ).map(lambda entry: dict([entry])),
    max_leaves=6,
)


def holds(condition: dict[str, Any], memory: dict[str, Any]) -> bool:
    """Whether a memory meets a filter, as its JSON says it."""

    def entry(name: str, value: Any) -> bool:
        match name.lower():
            case "and":
                return all(holds(part, memory) for part in value)
            case "or":
                return any(holds(part, memory) for part in value)
            case "not":
                return not any(holds(part, memory) for part in (value if isinstance(value, list) else [value]))
        tests = value if isinstance(value, dict) else {"in": value} if isinstance(value, list) else {"eq": value}
        if value == "*":
            tests = {"exists": True}
        return all(compared(memory, name, operator, operand) for operator, operand in tests.items())

    return all(entry(name, value) for name, value in condition.items())


def compared(memory: dict[str, Any], name: str, operator: str, operand: Any) -> bool:
    negations = {"ne": "eq", "nin": "in"}
    if operator in negations:
        return not compared(memory, name, negations[operator], operand)
    if name == "category":
        if operator in ("exists", "eq") and not isinstance(operand, str):
            return bool(memory["category"]) is (operand is True)
        return any(one(value, operator, operand, name) for value in memory["category"])
    if not name.startswith("metadata."):
        return one(memory[name], operator, operand, name)
    value: Any = memory["metadata"]
    for part in name.split(".")[1:]:
        value = value.get(part, MISSING) if isinstance(value, dict) else MISSING
    return one(None if value is MISSING else value, operator, operand, name)


def one(value: Any, operator: str, operand: Any, name: str) -> bool:
    match operator:
        case "exists":
            return (value is not None) is operand
        case "eq":
            return same(value, operand, name)
        case "in":
            return any(same(value, each, name) for each in operand)
        case "contains":
            if isinstance(value, list):
                return any(same(each, operand, name) for each in value)
            return isinstance(value, str) and isinstance(operand, str) and operand in value
        case "icontains":
            return isinstance(value, str) and operand.lower() in value.lower()
    if isinstance(operand, str):
        if not isinstance(value, str) or re.fullmatch(ISO, value) is None:
            return False
        left, (first, last) = seconds(value), ends(operand)
        return {"gt": left > last, "gte": left >= first, "lt": left < first, "lte": left <= last}[operator]
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    left, right = exact(value), exact(operand)
    return {"gt": left > right, "gte": left >= right, "lt": left < right, "lte": left <= right}[operator]


def same(value: Any, other: Any, name: str) -> bool:
    if name == "created_at" and isinstance(other, str):
        first, last = ends(other)
        return first <= seconds(value) <= last
    if isinstance(value, bool) or isinstance(other, bool):
        return value is other
    if isinstance(value, int | float) and isinstance(other, int | float):
        return exact(value) == exact(other)
    return type(value) is type(other) and bool(value == other)


def ends(value: str) -> tuple[Decimal, Decimal]:
    """The first and the last microsecond of a time; a date is its whole day."""
    first = seconds(value)
    return first, first + (86_400_000_000 - 1 if len(value) == len("2026-01-31") else 0)


def exact(number: float) -> Decimal:
    """A number as its digits say it."""
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))


def seconds(value: str) -> Decimal:
    """Microseconds since the year 1, which need not lie within what Python has dates for."""
    moment = datetime.fromisoformat(value)
    since = moment.replace(tzinfo=None) - datetime(1, 1, 1) - (moment.utcoffset() or timedelta())
    return Decimal(since // timedelta(microseconds=1))


ADD = text("""
insert into memories (
  id, user_id, app_id, content, hash, metadata, namespace, kind, thread_id, key, importance, created_at)
select cast(row->>'id' as uuid), :user, cast(row->>'app_id' as uuid), 'text', number, row->'metadata',
       row->>'namespace', row->>'kind', row->>'thread_id', row->>'key', cast(row->>'importance' as float8),
       cast(row->>'created_at' as timestamptz)
from jsonb_array_elements(cast(:rows as jsonb)) with ordinality g(row, number)
""")
FILE = text("""
insert into memory_categories (memory_id, category_id)
select cast(row->>'id' as uuid), c.id
from jsonb_array_elements(cast(:rows as jsonb)) row, jsonb_array_elements_text(row->'category') filed(under)
join categories c on c.name = filed.under
""")


@pytest.mark.slow
@settings(max_examples=300, suppress_health_check=list(HealthCheck))
@given(rows=st.lists(memories(), min_size=1, max_size=8), condition=FILTERS)
async def test_a_filter_in_sql_says_what_the_model_says(
    services: Services, rows: list[dict[str, Any]], condition: dict[str, Any]
):
    apps = {name: await services.directory.caller("filters-model", name) for name in ("claude", "cursor")}
    user = apps["claude"].user_id
    shape, binds = filtering(parsed(condition))
    sent = [
        {
            **row,
            "id": str(UUID(int=number)),
            "app_id": str(apps[row["app"]].app_id),
            "category": sorted(row["category"]),
        }
        for number, row in enumerate(rows)
    ]
    async with services.database.engine.connect() as connection:
        await connection.execute(
            text("insert into categories (name) select unnest(cast(:names as text[])) on conflict do nothing"),
            {"names": ["food", "Food", "work"]},
        )
        await connection.execute(ADD, {"rows": exact_json.for_jsonb(sent), "user": user})
        await connection.execute(FILE, {"rows": exact_json.for_jsonb(sent)})
        which = select(Memory.id).where(Memory.user_id == user, predicate(shape))
        found = set(await connection.scalars(which, binds | {"caller_user_id": user}))
        await connection.rollback()
    assert found == {UUID(int=number) for number, row in enumerate(rows) if holds(condition, row)}


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(value=st.from_regex(ISO, fullmatch=True))
async def test_postgresql_reads_every_time_as_python_does(services: Services, value: str):
    async with services.database.statement() as tx:
        told = await tx.scalar(EPOCH, {"value": value})
    # Python cuts off what is less than a microsecond.
    assert abs(Decimal(told) - (seconds(value) - seconds("1970-01-01"))) <= 1


EPOCH = text("select round(extract(epoch from cast(cast(:value as text) as timestamptz)) * 1000000)")

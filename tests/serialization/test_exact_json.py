"""Numbers come out of JSON as they went in, however long they are."""

from __future__ import annotations

import json
from typing import Any
from uuid import UUID

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import text

from openmemory.serialization import exact_json
from openmemory.services import Services

LONG = (2**64, 2**64 - 1, -(2**63), -(2**63) - 1, 10**30, -(10**40) + 1, int("9" * 4000))

NUMBERS = st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(LONG)
VALUES = st.recursive(
    NUMBERS | st.none() | st.booleans() | st.text(st.sampled_from('a1e+-.0"\\é'), max_size=12),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner, max_size=4),
    max_leaves=20,
)


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types throughout: 1 is not 1.0 here."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


@given(VALUES)
def test_what_is_written_is_read_again_to_the_digit(value: Any) -> None:
    for indented in (False, True):
        raw = exact_json.dumps(value, indented=indented)
        assert same(exact_json.loads(raw), value)
        assert same(exact_json.loads(raw.decode()), value)
    stored = exact_json.for_jsonb(value)
    assert same(exact_json.loads(stored), value)


@given(st.binary(max_size=40) | st.text(st.sampled_from("0123456789.-e"), min_size=19, max_size=25).map(str.encode))
def test_a_number_that_orjson_would_round_is_always_seen(raw: bytes) -> None:
    if not exact_json.has_long_number(raw):
        try:
            found = orjson.loads(raw)
        except orjson.JSONDecodeError:
            return
        if not isinstance(found, float):
            assert same(found, json.loads(raw))


async def test_postgres_gives_back_every_number_as_it_was(services: Services) -> None:
    value = {
        "whole": [*LONG, 0, -1], "floats": [1e16, 1.5e300, 1e308, 1.7976931348623157e308, 5e-324, 0.1, 1e15, 123.0],
        "text": 'a "1e+30" and 1e+30', "1e+30": 1e30, "huge": 10**4200,
    }  # fmt: skip
    async with services.database.statement() as tx:
        query = text("SELECT CAST(:value AS jsonb) AS value")
        found = await tx.scalar(query, {"value": exact_json.for_jsonb(value)})
    assert same(found, value)


def test_what_json_cannot_say_is_told_as_such() -> None:
    for raw in ("NaN", "Infinity", "[-Infinity]", "1e999", f"[{2**70}, NaN]", f"[{2**70}, 1e999]", "9" * 5000):
        with pytest.raises(ValueError, match=r"\w"):
            exact_json.loads(raw)
    for strange in (object(), [2**70, object()], [2**70, float("nan")], [2**70, "\ud800"]):
        with pytest.raises(TypeError):
            exact_json.dumps({"a": strange})
    id_ = UUID(int=1)
    assert exact_json.loads(exact_json.dumps({"n": 2**70, "id": id_})) == {"n": 2**70, "id": str(id_)}


def test_null_stands_for_numbers_that_are_none_and_they_are_counted() -> None:
    nan, inf = float("nan"), float("inf")
    assert exact_json.finite({"a": nan, "b": [1, inf, {"c": -inf}], "d": 2}) == (
        {"a": None, "b": [1, None, {"c": None}], "d": 2}, 3
    )  # fmt: skip
    whole = {"a": [1.5, {"b": "NaN"}]}
    kept, count = exact_json.finite(whole)
    assert (kept is whole, count) == (True, 0)

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.serialization.json_limits import more_than
from tests.doors.rest.test_guard import chunks

JSON = {"Content-Type": "application/json"}
MANY = b"[" + b"{}," * 700 + b"{}]"
FEW = json.dumps(['[{,\\"' * 700] * 3).encode()


def count(value: Any) -> int:
    if isinstance(value, dict):
        return 1 + sum(map(count, value.values()))
    return 1 + sum(map(count, value)) if isinstance(value, list) else 1


def empty(value: Any) -> int:
    """Containers without anything in them: their bracket is followed by no value."""
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if inner is None else sum(map(empty, inner)) + (not inner)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.sampled_from('a,[{}]:"\\é'), max_size=8),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(max_size=3), inner, max_size=5),
    max_leaves=30,
)


@pytest.mark.slow
@given(VALUES, st.booleans())
def test_the_values_of_any_json_are_counted(value: Any, spaced: bool) -> None:
    body = json.dumps(value, indent=1 if spaced else None).encode()
    most = count(value) + empty(value)
    assert not more_than(most, body)
    assert more_than(count(value) - 1, body) or count(value) == 1


@pytest.mark.parametrize("body", [b"[" * 5_000, b",{" * 5_000, b'"",' * 5_000, b'""' * 9_000 + b"," * 5_000])
def test_what_is_no_json_is_counted_too(body: bytes) -> None:
    assert more_than(1_000, body)


@pytest.mark.parametrize(("body", "status"), [(MANY * 2, 413), (FEW, 200), (MANY[:1000], 200)])
async def test_a_body_of_too_many_values_is_refused_declared_or_streamed(guarded, body, status):
    async with guarded(limits={"json_values": 1000}) as client:
        for content in (body, chunks(body[:700], body[700:])):
            answer = await client.post("/x", content=content)
            assert answer.status_code == status
            if status == 413:
                assert answer.json()["detail"] == "body: has more than 1,000 JSON values (limits.json_values)"


@pytest.mark.parametrize("path", ["/api/v1/memories", "/mcp", "/mcp/claude/http/bob"])
async def test_no_door_takes_too_many_values(make_client, path):
    async with make_client(limits={"json_values": 1000}) as client:
        answer = await client.post(path, content=MANY * 2, headers=JSON)
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")

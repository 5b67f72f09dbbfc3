"""Halves of surrogate pairs become U+FFFD, and everything else stays as it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.serialization import exact_json
from openmemory.serialization.surrogates import replace_in, replace_in_body, replace_in_json

ANY_TEXT = st.text(st.characters(codec=None) | st.sampled_from('\ud83d\ude00\\u\x00\n"d8'))
VALUES = st.recursive(
    ANY_TEXT | st.integers() | st.none(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(ANY_TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (rb'"\ud83d"', "\ufffd"),
        (rb'"\uDE00 low"', "\ufffd low"),
        (rb'"\ud83d\ude00"', "\U0001f600"),
        (rb'"\ude00\ud83d"', "\ufffd\ufffd"),
        (rb'"\ud83d\ud83d\ude00\ude00"', "\ufffd\U0001f600\ufffd"),
        (rb'"\\ud83d"', r"\ud83d"),
        (rb'"\\\ud83d"', "\\\ufffd"),
        (rb'"\\ud83d\ude00"', "\\ud83d\ufffd"),
        (b'"\xed\xa0\xbd\xed\xb8\x80 \xed\x9f\xbf"', "\ufffd\ufffd \ud7ff"),
        ('"\U0001f600 ï"'.encode(), "\U0001f600 ï"),
    ],
)
def test_only_halves_are_replaced(raw: bytes, text: str) -> None:
    assert json.loads(replace_in_json(raw)) == text
    assert exact_json.loads(raw) == text


@given(VALUES)
def test_any_value_that_python_writes_is_read_with_every_half_replaced(value: Any) -> None:
    by_escape = json.loads(replace_in_json(json.dumps(value).encode()))
    assert by_escape == replace_in(value)
    assert json.dumps(by_escape, ensure_ascii=False).encode().decode() == json.dumps(by_escape, ensure_ascii=False)


@given(st.binary())
def test_broken_json_stays_as_broken_as_it_is(raw: bytes) -> None:
    changed = replace_in_json(raw)
    assert len(changed) == len(raw)
    try:
        raw.decode()
    except UnicodeDecodeError:
        return
    if b"\\u" not in raw:
        assert changed == raw


async def test_a_large_body_is_read_like_a_small_one() -> None:
    many = rb"\ud800a" * 20_000
    assert await replace_in_body(many) == rb"\ufffda" * 20_000
    assert await replace_in_body(many[:700]) == rb"\ufffda" * 100

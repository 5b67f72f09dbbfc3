from __future__ import annotations

import json
import string
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from openmemory.backup import json_stream
from openmemory.backup.format import MAX_DEPTH, MAX_RECORD_BYTES, BadArchive
from openmemory.serialization.surrogates import replace_in

KEYS = st.text(string.ascii_letters + '"\\[]{}é', min_size=1, max_size=6)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)  # fmt: skip


def reading(data: bytes, size: int = 1_000_000) -> Callable[[int], bytes]:
    """A function that gives data in pieces of a size."""
    at = 0

    def read(most: int) -> bytes:
        nonlocal at
        piece = data[at : at + min(size, most)]
        at += len(piece)
        return piece

    return read


def whole(data: bytes, size: int = 1_000_000) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, number, value in json_stream.entries(reading(data, size), "it"):
        if number is None:
            found[key] = value
        elif number == -1:
            found[key] = []
        else:
            assert number == len(found[key])
            found[key].append(value)
    return found


@settings(max_examples=300)
@given(
    value=st.dictionaries(KEYS, VALUES, max_size=5),
    size=st.integers(1, 50),
    indent=st.sampled_from([None, 1]),
    ascii_only=st.booleans(),
)
def test_every_object_is_read_as_json_reads_it_whatever_the_pieces(
    value: dict[str, Any], size: int, indent: int | None, ascii_only: bool
) -> None:
    data = json.dumps(value, indent=indent, ensure_ascii=ascii_only).encode()
    assert whole(data, size) == value


@settings(max_examples=300)
@example(value={"AAA": 1.5965907498032117e293}, place=9, change=b"")  # without its point it is too large
@given(
    value=st.dictionaries(KEYS, VALUES, min_size=1, max_size=4),
    place=st.integers(0, 10_000),
    change=st.sampled_from([b"", b'"', b"[", b"]", b"{", b"}", b",", b":", b"\\", b"x", b"\x00", b"\xff"]),
)
def test_what_json_refuses_is_refused(value: dict[str, Any], place: int, change: bytes) -> None:
    data = json.dumps(value).encode()
    place %= len(data)
    changed = data[:place] + change + data[place + 1 :]
    try:
        expected = json.loads(changed)
        repeated = json.loads(changed, object_pairs_hook=lambda pairs: len(pairs) != len(dict(pairs)))
    except (ValueError, UnicodeDecodeError):
        with pytest.raises(BadArchive):
            whole(changed, 7)
        return
    if isinstance(expected, dict) and not repeated and is_finite(expected):
        assert whole(changed, 7) == replace_in(expected)


def is_finite(value: Any) -> bool:
    """True if a value has no number beyond those of a float, such as 1e400. They are refused."""
    try:
        json.dumps(value, allow_nan=False)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "it: must be a JSON object"),
        (b"[]", "it: must be a JSON object"),
        (b'{"a": [1, 2', "a: is not valid JSON: it ends too soon"),
        (b'{"a": ["b', r"a\[0\]: is not valid JSON: it ends too soon"),
        (b'{"a": [1,]}', "a: is not valid JSON: a value is missing"),
        (b'{"a": [1 2]}', "a: is not valid JSON: a comma is missing"),
        (b'{"a": 1} x', "it: is not valid JSON: there is data after its end"),
        (b'{"a": 1, "a": 2}', "a: is there twice"),
        (b'{"a": [NaN]}', r"a\[0\]: is not valid JSON"),
        (b'{"a": 1e400}', "a: is not valid JSON: NaN and infinity are not numbers"),
        (b'{"a": ["\xff"]}', r"a\[0\]: is not valid JSON"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(data: bytes, problem: str) -> None:
    with pytest.raises(BadArchive, match=problem):
        whole(data, 3)


def test_half_of_a_surrogate_pair_is_replaced_and_numbers_keep_their_digits() -> None:
    assert whole(b'{"a": ["\\ud800"], "b\\udc00": [%d]}' % 10**30) == {"a": ["\ufffd"], "b\ufffd": [10**30]}


@pytest.mark.parametrize("piece", [b"x", b"[", b'{"k":', b" ", b"1"])
def test_an_endless_entry_is_given_up_before_it_fills_the_memory(piece: bytes) -> None:
    came = 0
    start = b'{"memories": [' + (b'"' if piece == b"x" else b"")

    def read(size: int) -> bytes:
        nonlocal came
        data = start if not came else (piece * size)[:size]
        came += len(data)
        if came > 8 * MAX_RECORD_BYTES:
            assert piece == b" ", "it reads on and on"  # space is passed over, and never held
            return b""
        return data

    with pytest.raises(BadArchive):
        for _ in json_stream.entries(read, "it"):
            pass


def test_an_entry_may_be_as_deep_as_the_limit_and_no_deeper() -> None:
    def nested(depth: int) -> bytes:
        return b'{"a": [' + b"[" * depth + b"]" * depth + b"]}"

    assert whole(nested(MAX_DEPTH))["a"] != []
    with pytest.raises(BadArchive, match=f"nested more than {MAX_DEPTH} levels"):
        whole(nested(MAX_DEPTH + 1))


@settings(max_examples=100)
@given(st.lists(st.dictionaries(KEYS, VALUES, max_size=3), max_size=6), st.integers(1, 40), st.booleans())
def test_lines_are_read_one_by_one(values: list[dict[str, Any]], size: int, ended: bool) -> None:
    data = "\n".join(json.dumps(value) for value in values).encode() + (b"\n" if ended else b"")
    found = list(json_stream.lines(reading(data, size), "it"))
    assert [value for _, value in found] == values
    assert [place for place, _ in found] == [f"it, line {number}" for number in range(1, len(values) + 1)]


def test_a_line_without_an_end_is_given_up() -> None:
    with pytest.raises(BadArchive, match="it, line 1: is larger than"):
        list(json_stream.lines(lambda size: b"x" * size, "it"))

from __future__ import annotations

import io
import json
from typing import Any

import pytest

from openmemory.doors.cli import jsonl
from openmemory.doors.cli.jsonl import Line, batches, parse, read_lines


def lines_of(*texts: bytes) -> list[Line]:
    return list(read_lines(io.BytesIO(b"\n".join(texts))))


def line(user: str, *, size: int = 1, problem: str | None = None) -> Line:
    return Line(1, 1, size, {"user": user}, problem)


def numbers(groups: list[list[Line]]) -> list[int]:
    return [len(group) for group in groups]


@pytest.mark.parametrize(
    ("raw", "problem"),
    [
        (b"no json", "is not JSON"),
        (b'{"text": "cut o', "is not JSON"),
        (b"\xff\xfe", "is not UTF-8 (byte 1)"),
        (b'["text"]', "must be a JSON object"),
        (b"17", "must be a JSON object"),
        (b"{}", "text: is missing"),
        (b'{"text": null}', "text: is missing"),
        (b'{"text": 5}', "text: must be a string"),
        (b'{"text": "a", "metadata": []}', "metadata: must be an object"),
        (b'{"text": "a", "categories": 5}', "categories: must be a list of strings"),
        (b'{"text": "a", "categories": [1]}', "categories: must be a list of strings"),
        (b'{"text": "a", "importance": true}', "importance: must be a number"),
        (b'{"text": "a", "importance": NaN}', "NaN is not a number"),
        (b'{"text": "a", "metadata": {"n": 1e999}}', "metadata: must not contain infinite numbers"),
        (b'{"text": "a", "created_at": []}', "created_at: must be ISO 8601"),
        (b'{"text": "a", "created_at": 1e999}', "created_at: must be ISO 8601"),
        (b'{"text": "a", "created_at": 1' + b"0" * 400 + b"}", "created_at: must be ISO 8601"),
        (b'{"text": "a", "importance": 1e999}', "importance: must be a number"),
        (b'{"text": "a", "state": "gone"}', "state: must be one of active"),
        (b'{"text": "a", "txet": "b"}', "unknown field 'txet'; did you mean 'text'?"),
        (b'{"text": "a", "zzz": "b"}', "unknown field 'zzz'; valid fields are text"),
        (b'{"text": "a", "metadata": ' + b"[" * 100_000, "nested too deeply"),
    ],
)
def test_rubbish_is_told_what_it_is(raw: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=r".") as refused:
        parse(raw)
    assert problem in str(refused.value)


@pytest.mark.parametrize("half", [rb"\ud83d", rb"\uDE00", b"\xed\xa0\xbd"])
def test_half_of_a_surrogate_pair_is_replaced(half: bytes) -> None:
    assert parse(b'{"text": "a %b b", "metadata": {"%b": 1}}' % (half, half)) == {
        "text": "a \ufffd b", "metadata": {"\ufffd": 1},
    }  # fmt: skip


@pytest.mark.parametrize("since", ["1777629600", "1777629600000", "1777629600000000", '"1777629600"', "1777629600000.0",
                                   '"1777629600000"', "1777629600000000000", "1777629600.0"])  # fmt: skip
def test_a_time_may_be_a_number_in_any_unit(since: str) -> None:
    memory = parse(b'{"text": "a", "created_at": %b, "expires_at": null}' % since.encode())
    assert memory["created_at"] == "2026-05-01T10:00:00+00:00"


@pytest.mark.parametrize(
    "listed", ['"pets, work"', '["pets", "work", "pets"]', '"[\\"pets\\", \\"work\\"]"', '"pets,,work"']
)
def test_categories_may_be_a_text(listed: str) -> None:
    assert parse(b'{"text": "a", "categories": %b}' % listed.encode())["categories"] == ["pets", "work"]


def test_what_only_an_export_writes_is_read_over() -> None:
    exported: dict[str, Any] = dict.fromkeys(jsonl.IGNORED, "x")
    assert parse(json.dumps(exported | {"text": "a", "key": None}).encode()) == {"text": "a"}


def test_bad_lines_keep_their_numbers_and_good_ones_go_on() -> None:
    found = lines_of(b'{"text": "a"}', b"", b"rubbish", b'{"text": "b"}')
    assert [(each.number, each.memory.get("text"), each.problem is not None) for each in found] == [
        (1, "a", False),
        (3, None, True),
        (4, "b", False),
    ]


def test_a_byte_order_mark_and_windows_line_ends_are_no_problem() -> None:
    found = lines_of(b'\xef\xbb\xbf{"text": "a"}\r', b'{"text": "b"}\r')
    assert [each.memory for each in found] == [{"text": "a"}, {"text": "b"}]


def test_a_line_beyond_the_limit_is_skipped_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jsonl, "_MAX_LINE_BYTES", 20)
    found = lines_of(b"x" * 75, b'{"text": "b"}')
    assert [(each.number, each.memory.get("text")) for each in found] == [(1, None), (2, "b")]
    assert found[0].problem == "is longer than 20 bytes"


def test_offsets_end_at_the_size_of_the_file() -> None:
    assert lines_of(b'{"text": "a"}', b"rubbish", b'{"text": "b"}')[-1].offset == 13 + 1 + 7 + 1 + 13


def test_a_batch_holds_lines_of_one_user_in_the_order_of_the_file() -> None:
    assert numbers(list(batches([line("a"), line("a"), line("b"), line("a")], count=9, size=99))) == [2, 1, 1]


def test_a_batch_ends_at_its_count_and_at_its_bytes() -> None:
    assert numbers(list(batches([line("a")] * 5, count=2, size=99))) == [2, 2, 1]
    assert numbers(list(batches([line("a", size=6)] * 3, count=9, size=12))) == [2, 1]
    assert numbers(list(batches([line("a", size=50)] * 2, count=9, size=12))) == [1, 1]


def test_a_bad_line_is_a_batch_of_its_own() -> None:
    assert numbers(list(batches([line("a"), line("a", problem="bad"), line("a")], count=9, size=99))) == [1, 1, 1]

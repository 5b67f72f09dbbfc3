"""Reading what language models answer."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from openmemory.capture.answers import MAX_OPERATIONS, Malformed, operations
from openmemory.llm.port import Reply

ONE = {"op": "ADD", "id": None, "text": "Alice likes tea.", "categories": ["Food", "food"], "kind": "preference",
       "importance": 7, "from": "2026-03", "until": None, "reason": None}  # fmt: skip


def reply(text: str, *, cut: bool = False, refused: bool = False) -> Reply:
    return Reply(text, 1, 1, True, 0.1, cut=cut, refused=refused)


WHOLE = json.dumps({"operations": [ONE]})


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"```json\n{WHOLE}\n```",
        f"Here you are:\n\n{WHOLE}\n\nAnything else?",
        f'<think>Maybe {{"operations": []}}? No.</think>\n{WHOLE}',
        json.dumps([ONE]),
        json.dumps(ONE),
        json.dumps({"thoughts": "[x]", "operations": [ONE]}),
        json.dumps({"operations": [{"event": "add", **{k: v for k, v in ONE.items() if k != "op"}}]}, indent=2),
    ],
)
def test_one_operation_is_found_wherever_it_stands(text: str) -> None:
    [found] = operations(reply(text))
    assert (found.op, found.number, found.text, found.categories) == ("ADD", None, "Alice likes tea.", ("food",))
    assert (found.kind, found.importance, found.since) == ("preference", 7, datetime(2026, 3, 1, tzinfo=UTC))


@pytest.mark.parametrize("text", ['{"operations": []}', "[]", "```\n[]\n```", 'None. {"operations":[]}'])
def test_nothing_to_do_is_an_answer(text: str) -> None:
    assert operations(reply(text)) == []


@pytest.mark.parametrize(
    ("text", "cut", "refused", "words"),
    [
        ("", False, False, "it is empty"),
        ("  \n", False, False, "it is empty"),
        ("", False, True, "you refused to answer"),
        ("I am sorry, I cannot help with that.", False, False, "it holds no JSON object"),
        ("{}", False, False, "it holds no JSON object"),
        ('{"results": []}', False, False, "it holds no JSON object"),
        ('{"operations": "none"}', False, False, "it holds no JSON object"),
        ('{"operations": [1, "x"]}', False, False, "it holds no JSON object"),
        ("null", False, False, "it holds no JSON object"),
        (WHOLE[:-9], True, False, "it is cut off"),
        ('{"operations": [' + json.dumps(ONE) + ', {"op": "ADD", "categories": []', True, False, "it is cut off"),
        ("[" * 100_000, False, False, "it holds no JSON object"),
        ('{"operations":' + "[" * 100_000, False, False, "it holds no JSON object"),
    ],
)
def test_what_cannot_be_used_is_told_and_no_part_of_it_taken(text: str, cut: bool, refused: bool, words: str) -> None:
    with pytest.raises(Malformed, match=words):
        operations(reply(text, cut=cut, refused=refused))


def test_fields_that_are_half_right_are_put_up_with() -> None:
    strange = [
        {
            "op": " update ",
            "id": "2",
            "text": " x ",
            "categories": "Work",
            "importance": "9",
            "from": "2026-11-22T10:00+02:00",
        },
        {"op": "ADD", "id": True, "text": 5, "categories": [None, 3], "kind": [], "importance": 7.6, "from": "soon"},
        {"op": "explode", "id": 10**30, "from": "9999-99-99", "importance": "1" * 5000},
        "none",
        {"op": None},
    ]
    first, second, third, fourth, fifth = operations(reply(json.dumps({"operations": strange})))
    assert (first.op, first.number, first.text, first.categories, first.importance) == ("UPDATE", 2, "x", ("work",), 9)
    assert first.since == datetime(2026, 11, 22, 8, tzinfo=UTC)
    assert (second.op, second.number, second.text, second.categories, second.importance) == ("ADD", None, "", (), 8)
    assert (third.op, third.number, third.since, third.importance) == ("", None, None, None)
    assert (fourth.op, fifth.op) == ("", "")


def test_a_flood_of_operations_is_cut() -> None:
    assert len(operations(reply(json.dumps({"operations": [ONE] * 10_000})))) == MAX_OPERATIONS + 1

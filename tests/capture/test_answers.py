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


TEA = '{"op": "ADD", "text": "Alice likes tea."}'


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ('{"operations": [{"op": "ADD", "text": "Alice likes\ntea."}]}', ["Alice likes\ntea."]),
        ('{"operations": [{"op": "ADD", "text": "Alice likes\ttea.",},],}', ["Alice likes\ttea."]),
        ("{'operations': [{'op': 'ADD', 'id': None, 'text': \"Alice's tea\"}]}", ["Alice's tea"]),
        ("{'operations': [{'op': 'ADD', 'text': 'Alice's tea, hot', 'important': True}]}", ["Alice's tea, hot"]),
        ('{"operations": [{"op": "ADD", "text": "She said "no" to tea."}]}', ['She said "no" to tea.']),
        ("{operations: [{op: 'ADD', text: 'Alice likes tea.'} " + TEA + "]}", ["Alice likes tea."] * 2),
        ('{"memory": [' + TEA.replace("op", "event") + "]}", ["Alice likes tea."]),
        ('{"memory": [{"id": "0", "memory": "Alice likes tea.", "event": "ADD"}]}', ["Alice likes tea."]),
        ('{"facts": ["Alice likes tea.", "Alice has a cat."]}', ["Alice likes tea.", "Alice has a cat."]),
        ('{"operations": ["ADD: Alice likes tea.", "Add milk."]}', ["Alice likes tea.", "Add milk."]),
        (f'[{{"operations": [{TEA}]}}, {{"operations": [{TEA}, {TEA}]}}]', ["Alice likes tea."] * 3),
        ('{"operations": [{"text": "Alice likes tea."}]}', ["Alice likes tea."]),
        (json.dumps({"operations": json.dumps([ONE])}), ["Alice likes tea."]),
        ('{"operations": [{"op": "ADD", "text": "tea \\ud83c\\udf75", "n": 1e999,}]}', ["tea 🍵"]),
    ],
)  # fmt: skip
def test_an_answer_that_holds_the_facts_in_another_form_is_read(text: str, found: list[str]) -> None:
    read = operations(reply(text))
    assert [(each.op, each.text) for each in read] == [("ADD", text) for text in found]


def test_an_operation_in_words_names_its_memory() -> None:
    [first, second, third] = operations(
        reply('{"operations": ["UPDATE 2: Alice has two cats", "DELETE #1 - gone", "NONE"]}')
    )
    assert (first.op, first.number, first.text) == ("UPDATE", 2, "Alice has two cats")
    assert (second.op, second.number) == ("DELETE", 1)
    assert third.op == ""


@pytest.mark.parametrize("text", [r"a \u0000 b", r"cut \ud83d here", r"\udf75\ud83c", "a \\x b"])
def test_what_cannot_be_stored_is_mended_and_spoils_nothing_else(text: str) -> None:
    answer = f'{{"operations": [{{"op": "ADD", "text": "{text}", "reason": "{text}"}}, {TEA}]}}'
    first, second = operations(reply(answer))
    assert first.op == "ADD"
    for value in (first.text, first.reason or ""):
        assert "\0" not in value
        assert value.encode()
    assert second.text == "Alice likes tea."


@pytest.mark.parametrize(
    "text", ["I noted [tea, milk] for you.", "{'a': 'b'}", '["Alice likes tea."]', "{tea}", '{"text": "Sorry."}']
)
def test_prose_with_brackets_is_no_operation(text: str) -> None:
    with pytest.raises(Malformed):
        operations(reply(text))


@pytest.mark.parametrize("end", range(17, len(WHOLE) - 1, 7))
def test_an_answer_without_its_end_is_never_used(end: int) -> None:
    for text in (WHOLE[:end], WHOLE[:end].replace('"', "'"), WHOLE[:end] + ","):
        with pytest.raises(Malformed):
            operations(reply(text, cut=True))


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
        ('{"operations": [1, " "]}', False, False, "it holds no JSON object"),
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

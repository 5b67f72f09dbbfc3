"""The everyday questions: the set can be read, and its figures say what was shown."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.everyday import Everyday, EverydayMemory, EverydayQuestion, Shown, line, read, report

MEMORIES = [
    EverydayMemory("old", "I live in Hamburg.", 90),
    EverydayMemory("new", "I moved to Leipzig.", 7),
    EverydayMemory("port", "The port is 5434.", 1, project=True),
]
HOME = EverydayQuestion("where do I live?", frozenset({"new"}), older=frozenset({"old"}))
BLOOD = EverydayQuestion("what is my blood type?")
BROAD = EverydayQuestion("who am I?", broad=True)


def shown(question: EverydayQuestion, *ids: str, tokens: int = 0) -> Shown:
    return Shown(question, ids, [0.5] * len(ids), tokens)


def test_the_set_can_be_read_and_most_of_its_questions_have_an_answer() -> None:
    everyday = read()
    strange = [each for each in everyday.questions if not each.right and not each.broad]
    assert (len(everyday.memories), len(everyday.questions), len(strange)) == (40, 60, 14)
    assert len({each.text for each in everyday.memories}) == 40
    assert all(each.older for each in everyday.questions if "now" in each.text.split())


def test_a_question_that_names_an_unknown_memory_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "set.json"
    memories = [{"id": "name", "text": "I am Ada.", "days": 1}]
    file.write_text(
        json.dumps({"memories": memories, "questions": [{"text": "who?", "right": ["nobody"]}], "person": []})
    )
    with pytest.raises(ValueError, match="nobody is no memory"):
        read(file)


def test_what_a_right_one_has_replaced_is_neither_right_nor_wrong() -> None:
    assert not shown(HOME, "old", "new").newer_is_first
    assert shown(HOME, "new", "old").newer_is_first
    assert not shown(HOME).newer_is_first
    assert shown(HOME, "port", "old", "new").wrong == 1
    assert not shown(HOME, "port", "old", "new").is_right
    assert line(shown(HOME, "new", "old")).startswith("  where")
    assert line(shown(HOME, "old", "new")).startswith("! where")


def test_the_figures_are_shares_of_the_questions() -> None:
    everyday = Everyday(MEMORIES, [HOME, BLOOD, BROAD], frozenset({"new", "old"}))
    answers = [shown(HOME, "old", "new", tokens=10), shown(BLOOD, "port", tokens=6), shown(BROAD, "new", "port")]
    assert [" ".join(each.split()) for each in report(everyday, answers)] == [
        "3 memories, 3 questions",
        "right one first or second 1.000 of 1",
        "wrong ones shown 0.50 a question (0.00 where there is an answer)",
        "unanswerable ones empty 0.000 of 1",
        "newer of two facts first 0.000 of 1",
        "tokens shown 8 a question",
        "“who am I?”: 1 of 2 about the person, 1 of projects, among the first 2",
    ]

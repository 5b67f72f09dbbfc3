"""`tools/prose.py` finds what it should find."""

from __future__ import annotations

import pytest

from tools import prose

LONG = "Word" + " word" * (prose.MAX_WORDS - 1)


@pytest.mark.parametrize(
    "text", [f"{LONG}.", f"Short. {LONG}.", f"- {LONG}\n- {LONG}", f"| {LONG} {LONG} |", f"```\n{LONG} {LONG}\n```"]
)
def test_a_page_without_long_sentences_has_no_finding(text: str) -> None:
    assert list(prose.long_sentences(text)) == []


@pytest.mark.parametrize(
    ("text", "line"),
    [(f"More {LONG}.", 1), (f"# Title\n\nShort. And {LONG}.", 3), (f"```\ncode\n```\n\n- {LONG} more", 5)],
)
def test_a_long_sentence_is_found_with_its_line(text: str, line: int) -> None:
    assert [number for number, _ in prose.long_sentences(text)] == [line]


def test_the_project_has_no_finding() -> None:
    assert list(prose.problems()) == []

from __future__ import annotations

from pathlib import Path

import pytest

from openmemory.connect.rules import RULES, with_rules, without_rules

FILE = Path("CLAUDE.md")


@pytest.mark.parametrize("text", ["# Mine\n\nBe brief.\n", "# Mine", "\n", "a\n\n", "<!-- other:begin -->\n"])
def test_the_block_is_added_once_and_removed_to_the_byte(text: str) -> None:
    added = with_rules(text, FILE)
    assert added.count(RULES) == 1
    assert with_rules(added, FILE) == added
    if text.endswith("\n"):
        assert without_rules(added) == text
    else:
        assert without_rules(added) == text + "\n", "the line that the block ended"


def test_what_is_written_around_the_block_stays() -> None:
    text = with_rules("# Mine\n", FILE) + "\nMore.\n"
    assert without_rules(text) == "# Mine\n\nMore.\n"


def test_an_older_block_is_renewed_in_its_place() -> None:
    old = "# Mine\n\n<!-- openmemory:begin -->\nother words\n<!-- openmemory:end -->\n\nMore.\n"
    assert with_rules(old, FILE) == f"# Mine\n\n{RULES}\nMore.\n"


def test_a_file_of_rules_alone_is_gone_without_them() -> None:
    assert without_rules(with_rules("", FILE)) is None
    cursor = Path(".cursor/rules/openmemory.mdc")
    text = with_rules("", cursor)
    assert text.startswith("---\ndescription: Long-term memory\nalwaysApply: true\n---\n")
    assert without_rules(text) is None


def test_a_file_without_the_block_stays() -> None:
    assert without_rules("# Mine\n") == "# Mine\n"

from __future__ import annotations

import pytest

from openmemory.errors import Invalid
from openmemory.identity.names import category_name, checked_name


@pytest.mark.parametrize(
    ("given", "name"),
    [("  work  ", "work"), ("\twork\n", "work"), ("a b", "a b"), ("../x", "../x"), ("Zoë 📚", "Zoë 📚")],
)
def test_a_name_is_returned_without_surrounding_blanks(given: str, name: str) -> None:
    assert checked_name(given, "app", 256) == name


@pytest.mark.parametrize("letter", ["\x00", "\x07", "\n", "\r", "\t", "\x7f", "\x85", "\u2028", "\u2029", "\u202e"])
def test_a_control_character_inside_a_name_is_refused(letter: str) -> None:
    with pytest.raises(Invalid, match=rf"^app: must not contain control characters, such as U\+{ord(letter):04X}"):
        checked_name(f"a{letter}b", "app", 256)


@pytest.mark.parametrize("given", ["", "  ", "a" * 257, "a\ud800"])
def test_a_name_is_neither_blank_nor_long_nor_broken(given: str) -> None:
    with pytest.raises(Invalid, match=r"^app: "):
        checked_name(given, "app", 256)


@pytest.mark.parametrize("spelled", ["Work", "WORK", " work ", "wOrK\n"])
def test_a_category_has_one_form(spelled: str) -> None:
    assert category_name(spelled) == "work"


def test_the_form_of_a_category_does_not_change_again() -> None:
    for spelled in ("AI, ML  &\tTechnology", "STRASSE", "Straße", "Cafe\u0301", "İstanbul"):
        assert category_name(category_name(spelled)) == category_name(spelled)
    assert category_name("STRASSE") == category_name("Straße")
    assert category_name("Cafe\u0301") == category_name("CAFÉ")

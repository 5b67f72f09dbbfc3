"""Texts that look the same are one text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.serialization.normal_form import normal_form


@pytest.mark.parametrize(
    "text",
    [
        "café\nau lait", "cafe\u0301\nau lait", "café\r\nau lait", "café\rau lait", "café \t\nau lait\n\n",
        "\ncafé\u00a0\nau lait ", "\ufeffcafé\nau lait"[1:],
    ],
)  # fmt: skip
def test_line_ends_blanks_at_ends_and_composition_make_no_difference(text: str) -> None:
    assert normal_form(text) == "café\nau lait"


@pytest.mark.parametrize("text", ["a  b", "a\n\nb", "a\n  b", "A", "ﬁ", "x²"])
def test_what_can_be_meant_stays(text: str) -> None:
    assert normal_form(text) == text


@given(st.text())
def test_a_normal_form_is_its_own(text: str) -> None:
    assert normal_form(normal_form(text)) == normal_form(text)

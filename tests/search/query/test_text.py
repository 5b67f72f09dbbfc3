"""Phrases, lexemes and broad questions, which are found in a query before PostgreSQL sees it."""

from __future__ import annotations

import pytest

from openmemory.search.query.text import MAX_PHRASES, lexemes, quoted


@pytest.mark.parametrize(
    ("query", "phrases"),
    [
        ('the "annual budget" of "last year"', ["annual budget", "last year"]),
        ("“annual budget” and «plan B»", ["annual budget", "plan B"]),
        ('"budget" alone is no phrase', []),
        ('"東京タワー"', ["東京タワー"]),
        ('one quote " only', []),
        ('"a b" ' * 9, ["a b"] * MAX_PHRASES),
    ],
)
def test_phrases_of_two_words_stand_in_quotes(query: str, phrases: list[str]):
    assert quoted(query) == phrases


@pytest.mark.parametrize(
    ("query", "at_least"),
    [
        ("what did the two of them say", 2),
        ("getUserById", 4),
        ("release v2.3.1", 3),
        ("on 8 May 2023", 6),
        ("2023-05-08", 8),
        ("東京タワーに行きました", 10),
        ("café", 2),
        ("src/app/main.py", 5),
    ],
)
def test_no_query_has_more_lexemes_than_are_counted(query: str, at_least: int):
    assert lexemes(query) >= at_least


def test_plain_questions_are_counted_exactly():
    assert lexemes("where does Caroline keep the blue violin") == 4

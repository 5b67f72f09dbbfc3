"""What is read in a query before PostgreSQL reads it."""

from __future__ import annotations

import pytest

from openmemory.search.spelling import MAX_PHRASES, MAX_WORD_LENGTH, lexemes, meant, quoted, unknown


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


def test_only_longer_words_may_be_misspelt():
    assert unknown("what Did the Kuberntes user_id 12345 abcd Kuberntes") == ["kuberntes"]
    assert unknown(f"{'a' * MAX_WORD_LENGTH} {'b' * (MAX_WORD_LENGTH + 1)} {'文' * 4_000}") == ["a" * MAX_WORD_LENGTH]


@pytest.mark.parametrize(
    ("word", "said", "other", "is_meant"),
    [
        ("vilion", "vilion", "violin", False),
        ("voilin", "voilin", "violin", True),
        ("violn", "violn", "violin", True),
        ("violiin", "violiin", "violin", True),
        ("kitten", "kitten", "mitten", False),
        ("painted", "paint", "point", True),
        ("kuberentes", "kuberent", "kubernet", True),
        ("clustr", "clustr", "cluster", True),
        ("clstr", "clstr", "cluster", False),
    ],
)
def test_one_slip_is_forgiven_and_two_in_long_words(word: str, said: str, other: str, is_meant: bool):
    assert meant([(word, said, other, 1)]) == ([other] if is_meant else [])


def test_the_nearest_and_then_the_most_common_is_meant():
    found = [("caorline", "caorlin", "carolin", 2), ("caorline", "caorlin", "caorlix", 1), ("x", "x", "y", 9)]
    assert meant([*found, ("caorline", "caorlin", "caorlis", 5)]) == ["caorlis"]

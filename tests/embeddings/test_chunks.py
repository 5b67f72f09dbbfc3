"""How long texts are cut."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.embeddings.chunks import BY_CHARACTERS, BY_TOKENS, ChunkingParameters, of_text, spans

TENS = ChunkingParameters(chunk_size=10, overlap=5, longest=20, slack=3, most=4, unit="letters")


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (0, [(0, 0)]),
        (1, [(0, 1)]),
        (10, [(0, 10)]),
        (11, [(0, 10), (1, 11)]),
        (15, [(0, 10), (5, 15)]),
        (20, [(0, 10), (5, 15), (10, 20)]),
        (25, [(0, 10), (5, 15), (10, 20), (15, 25)]),
        # Longer windows with half in common: 30 = 12 + 3 * 6.
        (30, [(0, 12), (6, 18), (12, 24), (18, 30)]),
        (50, [(0, 20), (10, 30), (20, 40), (30, 50)]),
        # The longest, and less in common.
        (65, [(0, 20), (15, 35), (30, 50), (45, 65)]),
        (80, [(0, 20), (20, 40), (40, 60), (60, 80)]),
        # What four of the longest do not reach is not read.
        (1_000, [(0, 20), (20, 40), (40, 60), (60, 80)]),
    ],
)
def test_windows_are_spread_evenly_over_the_text(count: int, expected: list[tuple[int, int]]) -> None:
    found = spans(count, TENS, lambda _: True)
    assert [(span.start, span.stop) for span in found] == expected


def test_edges_move_back_to_where_a_word_begins_unless_the_word_is_long() -> None:
    found = spans(20, TENS, lambda at: at in {4, 8, 15})
    assert [(span.start, span.stop) for span in found] == [(0, 8), (4, 15), (8, 20)]
    found = spans(20, TENS, lambda at: at == 1)
    assert [(span.start, span.stop) for span in found] == [(0, 10), (5, 15), (10, 20)]


@given(st.integers(0, 40_000), st.sampled_from([BY_TOKENS, BY_CHARACTERS, TENS]), st.sets(st.integers(0, 4_000)))
def test_every_window_is_short_enough_and_nothing_between_two_is_left_out(
    count: int, parameters: ChunkingParameters, words: set[int]
) -> None:
    found = spans(count, parameters, lambda at: at % 4_001 in words)
    assert found[0].start == 0
    assert len(found) <= parameters.most
    assert all(span.stop - span.start <= parameters.longest + parameters.slack for span in found)
    assert all(before.start <= after.start <= before.stop <= after.stop for before, after in pairwise(found))
    if count <= parameters.most * parameters.longest:
        assert found[-1].stop == count


def test_a_text_without_a_tokenizer_is_cut_between_words() -> None:
    text = " ".join(f"word{number}" for number in range(400))
    chunks = of_text(text)
    assert len(chunks) > 5
    words = set(text.split())
    assert all(set(chunk.split()) <= words for chunk in chunks)
    assert {word for chunk in chunks for word in chunk.split()} == words
    assert of_text("short") == ["short"]
    assert of_text(" " * 5_000) == [" " * 5_000]
    assert all(chunk.strip() for chunk in of_text("a" + " " * 5_000 + "b"))

"""Vectors of single tokens: which count, that each is told once, and that they are small and still tell."""

from __future__ import annotations

from collections.abc import AsyncIterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from openmemory.embeddings.chunks import BY_TOKENS, spans
from openmemory.embeddings.local import LocalEmbedder
from openmemory.embeddings.port import CODE
from openmemory.embeddings.tokens import MAX_TOKENS, coded, cosines, counting, owned, rotation, rounded, thinned

SPOKEN = "The ferry leaves the harbour before the rain comes. "


@pytest.fixture(scope="module")
async def embedder() -> AsyncIterator[LocalEmbedder]:
    embedder = LocalEmbedder()
    yield embedder
    await embedder.close()


@given(count=st.integers(0, 12_000), words=st.integers(1, 30))
def test_every_token_that_a_window_holds_is_told_by_one_of_them(count: int, words: int) -> None:
    cut = spans(count, BY_TOKENS, lambda at: at % words == 0)
    told = owned(cut)
    assert [one.start for one in told[1:]] == [one.stop for one in told[:-1]]
    assert (told[0].start, told[-1].stop) == (0, cut[-1].stop)
    for chunk, own in zip(cut, told, strict=True):
        assert chunk.start <= own.start <= own.stop <= chunk.stop


def test_a_rotation_is_orthogonal_and_always_the_same() -> None:
    turn = rotation(384)
    assert turn.shape == (384, 384)
    assert turn.T @ turn == pytest.approx(np.eye(384), abs=1e-5)
    assert (turn == rotation(384)).all()
    # What is stored was made by this one.
    assert turn[0, :3] == pytest.approx(np.array(FIRST), abs=1e-6)


FIRST = (0.02373929, 0.03188035, 0.00382926)


def test_numbers_signs_and_what_the_model_adds_do_not_count() -> None:
    vocabulary = {
        "[CLS]": 0,
        "tea": 1,
        "##ing": 2,
        "the": 9,
        "##s": 11,
        "32": 3,
        "##00": 4,
        "b2b": 5,
        ",": 6,
        "茶": 7,
        "é": 8,
        "[UNK]": 10,
    }
    words, numbers = counting(vocabulary, [0, 10])
    assert {token for token, id_ in vocabulary.items() if words[id_]} == {"tea", "##ing", "##s", "茶", "é"}
    assert {token for token, id_ in vocabulary.items() if numbers[id_]} == {"32", "##00", "b2b"}
    assert len(words) == len(numbers) == 12


def test_rounding_keeps_the_direction_and_what_has_none_is_zero() -> None:
    vectors = np.random.default_rng(3).standard_normal((50, 384)).astype(np.float32)
    vectors[7] = 0
    small = rounded(vectors)
    assert (small.dtype, small.shape) == (np.int8, (50, 384))
    assert not small[7].any()
    for row in (0, 1, 49):
        norm = np.linalg.norm(small[row].astype(float))
        assert norm == pytest.approx(127, rel=0.02)
        assert small[row] @ vectors[row] / (norm * np.linalg.norm(vectors[row])) > 0.99


@given(seed=st.integers(0, 10_000), wanted=st.floats(0, 1))
def test_signs_tell_about_the_cosine(seed: int, wanted: float) -> None:
    chance = np.random.default_rng(seed)
    one, other = np.linalg.qr(chance.standard_normal((384, 2)))[0].T.astype(np.float32)
    near = wanted * one + np.sqrt(1 - wanted**2) * other
    code = coded(near[np.newaxis])
    assert (code.dtype, code.shape) == (np.uint8, (1, CODE))
    # 384 signs have a deviation of 0.03 to 0.04.
    assert cosines(rounded(one[np.newaxis]), code)[0, 0] == pytest.approx(wanted, abs=0.22)


def test_cosines_are_those_of_the_formula() -> None:
    chance = np.random.default_rng(5)
    question = rounded(chance.standard_normal((7, 384)).astype(np.float32))
    text = chance.standard_normal((600, 384)).astype(np.float32)
    signs = np.where(text > 0, 1, -1)
    exact = signs @ (question.astype(int).T / 127) / np.sqrt(384) / np.sqrt(2 / np.pi)
    assert cosines(question, coded(text)) == pytest.approx(np.clip(exact, 0, 1), abs=1e-5)


def test_of_too_many_tokens_some_of_every_part_stay() -> None:
    tokens = np.arange(3 * MAX_TOKENS, dtype=np.int64)[:, np.newaxis].repeat(CODE, axis=1)
    kept = thinned(tokens)
    assert len(kept) == MAX_TOKENS
    assert (kept[0, 0], kept[-1, 0]) == (0, 3 * MAX_TOKENS - 1)
    assert np.diff(kept[:, 0]).max() <= 4
    assert thinned(tokens[:MAX_TOKENS]) is not None
    assert len(thinned(tokens[:MAX_TOKENS])) == MAX_TOKENS


@pytest.mark.slow
async def test_tokens_are_those_of_words_however_long_the_text_is(embedder: LocalEmbedder) -> None:
    texts = ["", "...!?", "3,200", "tea", "Tea, with milk: 2 cups.", SPOKEN * 20, SPOKEN * 400]
    counts = [len(made.tokens) for made in await embedder.documents(texts)]
    assert counts == [0, 0, 0, 1, 3, 120, MAX_TOKENS]


async def test_numbers_are_zeros_in_a_question(embedder: LocalEmbedder) -> None:
    asked = (await embedder.query("Who was paid 3200?")).tokens
    assert [bool(token.any()) for token in asked] == [True, False, False]
    [alone] = await embedder.documents(["Who was paid 3200?"])
    assert len(alone.tokens) == 1


async def test_a_token_knows_its_sense(embedder: LocalEmbedder) -> None:
    question = (await embedder.query("river bank")).tokens
    water, money = await embedder.documents(["They sat on the bank of the stream", "The bank raised its interest rate"])
    assert cosines(question, water.tokens).max(axis=0)[1] > cosines(question, money.tokens).max(axis=0)[1]


async def test_a_question_and_a_text_of_the_same_words_have_the_same_tokens(embedder: LocalEmbedder) -> None:
    question = await embedder.query(SPOKEN)
    [document] = await embedder.documents([SPOKEN])
    assert np.diag(cosines(question.tokens, document.tokens)).min() > 0.9


async def test_what_stands_in_two_windows_is_told_once_and_in_order(embedder: LocalEmbedder) -> None:
    long = "ferry violin pepper window doctor yellow lantern kitchen soldier planet winter carpet " * 25
    [document] = await embedder.documents([long])
    assert len(document.chunks) > 3
    assert len(document.tokens) == 300
    for place, word in enumerate(long.split()[:12]):
        near = cosines((await embedder.query(word)).tokens, document.tokens)[:, 0]
        assert near.reshape(25, 12).mean(axis=0).argmax() == place, word


async def test_one_that_is_not_asked_for_tokens_makes_none() -> None:
    embedder = LocalEmbedder(tokenwise=False)
    try:
        assert (await embedder.query("tea")).tokens is None
        assert [made.tokens for made in await embedder.documents(["tea", SPOKEN * 100])] == [None, None]
    finally:
        await embedder.close()

"""Late interaction: compares the candidates with the question word by word.

One vector for a text describes its average topic. The same network computes a vector for each token in its context. The
nearest token in a memory for each token of a question shows whether the memory says *that*, not only something similar.
This is MaxSim of ColBERT (Khattab and Zaharia 2020), applied only to the first of the candidates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.port import CODE, Codes, Tokens
from openmemory.embeddings.tokens import cosines

BLOCK = 32
"""The number of tokens in half a window. A text must say everything within one window: matches in distant places are
unrelated. With stop words, this is as long as the chunk of one vector (`embeddings.chunks`)."""

CONTEXT = 16
"""The number of tokens of the preceding memories of a thread that are read with a memory shorter than a window. People
say one thing in several short messages, and an answer does not repeat its question. With 32, results are the same."""

MAX_TOKENS = 15_000
"""The number of tokens that are compared, those of the first candidates. More would take more than ten milliseconds."""

MIN_THREAD_TOKENS = 3_000
"""The number of candidate tokens from which a comparison takes more than two milliseconds and moves to another
thread."""

MIN_COMPARED = 8
"""The number of candidates from which they are compared with each other. Among fewer, none is like most of them."""

Maxima = npt.NDArray[np.float32]
"""For each block, window or candidate, the cosine of the nearest token to each token of the question, shape (…,
tokens)."""


class LateScore(NamedTuple):
    """The MaxSim of a candidate, from 0 to 1, and how much more it says than half of the candidates of what few of them
    say. `distinct` is 0 among fewer than `MIN_COMPARED` candidates."""

    maxsim: float
    distinct: float


class TextTokens(NamedTuple):
    """A text by its stored tokens, and those of the texts `before` it in its thread."""

    own: bytes
    before: Sequence[bytes] = ()


async def late_scores(question: Tokens | None, texts: Sequence[TextTokens]) -> list[LateScore | None]:
    """The scores of texts, best first, whose tokens are compared with those of a question. None: not compared.

    `question` is None if the model computed no tokens of it. Numbers are left to the words: their tokens are zeros.
    """
    words = None if question is None else question[question.any(axis=1)]
    if words is None or not len(words):
        return [None] * len(texts)
    places, counts, tokens = in_context(texts)
    if not places:
        return [None] * len(texts)
    if len(tokens) < MIN_THREAD_TOKENS:
        scores = compared(words, counts, tokens)
    else:
        scores = await asyncio.to_thread(compared, words, counts, tokens)
    all_scores: list[LateScore | None] = [None] * len(texts)
    for place, score in zip(places, scores, strict=True):
        all_scores[place] = score
    return all_scores


def in_context(texts: Iterable[TextTokens]) -> tuple[list[int], list[int], Codes]:
    """The places of the first texts that have at most `MAX_TOKENS` tokens together, at least one; the number of tokens
    of each; and the tokens. Those of a short text follow the last `CONTEXT` of the ones `before` it."""
    places, counts, parts, total = list[int](), list[int](), list[bytes](), 0
    for place, (own, before) in enumerate(texts):
        if not own:
            continue
        some = [own]
        room = CONTEXT * CODE if before and len(own) < 2 * BLOCK * CODE else 0
        for earlier in reversed(before):
            if room and earlier:
                some.insert(0, earlier[-room:])
                room -= len(some[0])
        count = sum(map(len, some)) // CODE
        if places and total + count > MAX_TOKENS:
            break
        places.append(place)
        counts.append(count)
        parts += some
        total += count
    return places, counts, np.frombuffer(b"".join(parts), dtype=np.uint8).reshape(-1, CODE)


def compared(question: Tokens, counts: Sequence[int], tokens: Codes) -> list[LateScore]:
    """The degree to which each text says what the question says. `counts` are the numbers of their tokens.

        maxsim = max over windows of the mean over the question's tokens of max²
        distinct = the same, where each token weighs 1 + max over the candidates of their maxima - 2 · mean over them,
            less its median over the candidates

    A token that all candidates contain says nothing of them, like a word that all texts contain (Spärck Jones 1972); a
    token that only one contains says most. Squares make one full match count more than two half matches. A window is
    two consecutive blocks, or the only one.
    """
    starts: list[int] = []
    begins: list[int] = []
    at = 0
    for count in counts:
        begins.append(len(starts))
        starts.extend(range(at, at + count, BLOCK))
        at += count
    windows: Maxima = np.maximum.reduceat(cosines(question, tokens), starts, axis=0)
    whole = windows
    if len(starts) > len(begins):
        whole = np.maximum.reduceat(windows, begins, axis=0)
        # The last block of a text has no successor.
        after = np.arange(1, len(starts) + 1)
        after[[begin - 1 for begin in [*begins[1:], len(starts)]]] -= 1
        windows = np.maximum(windows, windows[after])
    squares = windows * windows
    maxsim = np.maximum.reduceat(squares.mean(axis=1), begins)
    distinct = np.zeros(len(begins))
    weights = 1 + whole.max(axis=0) - 2 * whole.mean(axis=0)
    if len(begins) >= MIN_COMPARED and (total := float(weights.sum())) > 0:
        distinct = np.maximum.reduceat(squares @ (weights / total), begins)
        distinct = distinct - np.median(distinct)
    return list(map(LateScore, maxsim.tolist(), distinct.tolist()))

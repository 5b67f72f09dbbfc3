"""Late interaction: compares the candidates with the question word by word.

One vector for a text describes its average topic. The same network computes a vector for each token in its context. The
nearest token in a memory for each token of a question shows whether the memory says *that*, not only something similar.
This is MaxSim of ColBERT (Khattab and Zaharia 2020), applied only to the first of the candidates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate, chain
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.port import Codes, Tokens
from openmemory.embeddings.tokens import cosines
from openmemory.index.tokens import StoredTokens

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


async def late_scores(
    question: Tokens | None, kept: StoredTokens, ids: Iterable[UUID], before: Mapping[UUID, Sequence[UUID]]
) -> dict[UUID, LateScore]:
    """Compares the question with those of the candidates, best first, whose tokens are `kept`.

    Short ones are read after the end of those `before` them. `question` is None if the model computed no tokens of it.
    Numbers are left to the words: their tokens are zeros.
    """
    words = None if question is None else question[question.any(axis=1)]
    if words is None or not len(words):
        return {}
    kept = first(in_context(kept, ids, before), MAX_TOKENS)
    if not kept.ids:
        return {}
    if len(kept.tokens) < MIN_THREAD_TOKENS:
        return compared(words, kept)
    return await asyncio.to_thread(compared, words, kept)


def first(kept: StoredTokens, most: int) -> StoredTokens:
    """The first items that have at most this many tokens together, at least one."""
    if len(kept.tokens) <= most:
        return kept
    count = max(1, sum(end <= most for end in accumulate(kept.counts)))
    return StoredTokens(kept.ids[:count], kept.counts[:count], kept.tokens[: sum(kept.counts[:count])])


def in_context(kept: StoredTokens, ids: Iterable[UUID], before: Mapping[UUID, Sequence[UUID]]) -> StoredTokens:
    """Those of the items that are present, in this order. A short one follows the last `CONTEXT` tokens of those
    `before` it."""
    some = kept.by_id()
    whole: dict[UUID, list[Codes]] = {}
    for id_ in ids:
        if (own := some.get(id_)) is None:
            continue
        whole[id_], room = [own], CONTEXT if len(own) < 2 * BLOCK else 0
        for earlier in reversed(before.get(id_, ())):
            if room and (more := some.get(earlier)) is not None:
                whole[id_].insert(0, more[-room:])
                room -= len(whole[id_][0])
    counts = [sum(map(len, parts)) for parts in whole.values()]
    return StoredTokens([*whole], counts, np.concatenate([kept.tokens[:0], *chain.from_iterable(whole.values())]))


def compared(question: Tokens, kept: StoredTokens) -> dict[UUID, LateScore]:
    """The degree to which each candidate says what the question says.

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
    for count in kept.counts:
        begins.append(len(starts))
        starts.extend(range(at, at + count, BLOCK))
        at += count
    windows: Maxima = np.maximum.reduceat(cosines(question, kept.tokens), starts, axis=0)
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
    return {id_: LateScore(*both) for id_, *both in zip(kept.ids, maxsim.tolist(), distinct.tolist(), strict=True)}

"""Late interaction: compares the best hits with the question word by word.

One vector for a text describes its average topic. The same network computes a vector for each token in its context. The
nearest token in a memory for each token of a question shows whether the memory says *that*, not only something similar.
This is MaxSim of ColBERT (Khattab and Zaharia 2020), applied only to the best of the fused candidates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple
from uuid import UUID

import numpy as np
import numpy.typing as npt

from openmemory.embeddings.port import Codes, Tokens
from openmemory.embeddings.tokens import cosines
from openmemory.index import tokens
from openmemory.index.tokens import StoredTokens
from openmemory.search.context import SearchContext
from openmemory.search.fusion import Fused

MAX_HITS = 30
"""The number of top hits whose tokens are read."""

BLOCK = 32
"""The number of tokens in half a window. A text must say everything within one window: matches in distant places are
unrelated. With stop words, this is as long as the chunk of one vector (`embeddings.chunks`)."""

CONTEXT = 16
"""The number of tokens of the preceding memories of a thread that are read with a memory shorter than a window. People
say one thing in several short messages, and an answer does not repeat its question. With 32, results are the same."""

MAX_WEIGHT = 0.7
"""The maximum weight of MaxSim against a score, approached by very short questions."""

HALF_WEIGHT_TOKENS = 16
"""The number of question tokens at which the weight is half of that. Of many tokens, most are near to something in any
text."""

FULL_WEIGHT_RANGE = 0.2
"""The minimum range of the candidates' MaxSims for full weight. If one of thirty candidates says it and the others do
not, the range is 0.3 to 0.6. Smaller differences are chance, and must not be spread over the scores."""

MIN_THREAD_TOKENS = 3_000
"""The number of candidate tokens from which a comparison takes more than two milliseconds and moves to another
thread."""

EQUAL = 1e-6
"""Scores that differ by no more than this are equal except for rounding."""

Maxima = npt.NDArray[np.float32]
"""For each block, window or candidate, the cosine of the nearest token to each token of the question, shape (…,
tokens)."""


class LateScore(NamedTuple):
    """The late interaction result of a hit: its weight, its `value` on the scale of the scores, its MaxSim, its rank by
    MaxSim from 1, and the factor that had been applied to the hit."""

    weight: float
    value: float
    maxsim: float
    rank: int
    scale: float


class BlendWeights(NamedTuple):
    """The parameters to blend two scores: the `weight` of the second, and the second on the scale of the first."""

    weight: float
    values: list[float]


class TokenReader:
    """Reads the stored tokens of the best hits of a search, of each memory once, in however many rounds."""

    def __init__(self, context: SearchContext) -> None:
        self._context = context
        self._settled: set[UUID] = set()
        """The memories whose tokens need no lookup: they were read, or belong to another text."""
        self._kept = tokens.NONE

    def unread(self, hits: Sequence[Fused]) -> list[UUID]:
        """Those of the best hits whose tokens are not read yet."""
        return [hit.id for hit in hits[:MAX_HITS] if hit.id not in self._settled]

    def keep(self, ids: Iterable[UUID], found: StoredTokens = tokens.NONE) -> None:
        """Keeps what was read for these memories."""
        self._settled.update(ids)
        self._kept = self._kept.joined(found)

    async def read(self, hits: Sequence[Fused], before: Mapping[UUID, Sequence[UUID]]) -> StoredTokens:
        """The tokens of the best hits and of those `before` them, and of all that were read earlier."""
        near = {id_ for hit in hits[:MAX_HITS] for id_ in before.get(hit.id, ())} - self._settled
        if unread := [*dict.fromkeys([*self.unread(hits), *near])]:
            context = self._context
            async with context.database.statement() as tx:
                found = await tokens.of_items(
                    tx, context.corpus.kind, context.caller.user_id, context.space.model, unread
                )
            self.keep(unread, found)
        return self._kept


async def add_late_interaction(
    hits: Sequence[Fused], question: Tokens | None, reader: TokenReader, before: Mapping[UUID, Sequence[UUID]]
) -> tuple[Sequence[Fused], dict[UUID, LateScore]]:
    """`compared` with the stored tokens of the best hits, and of the memories `before` them in their threads.

    `question` is None if the model computed no tokens of the question. Then nothing changes.
    """
    if question is None or not hits:
        return hits, {}
    kept = await reader.read(hits, before)
    if len(kept.tokens) < MIN_THREAD_TOKENS:
        return compared(hits, question, kept, before)
    return await asyncio.to_thread(compared, hits, question, kept, before)


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


def maxsims(question: Tokens, kept: StoredTokens) -> list[float]:
    """The degree to which each candidate says what the question says, 0 to 1.

        maxsim = max over windows of Σ over the question's tokens of w · max² / Σ w
        w = 1 + max over the candidates of their maxima - 2 · mean over them

    MaxSim is weighted by how well a token separates the candidates. A token that all of them contain says nothing, like
    a word that all texts contain (Spärck Jones 1972); a token that only one contains says most. Squares make one full
    match count more than two half matches. A window is two consecutive blocks, or the only one.
    """
    starts: list[int] = []
    begins: list[int] = []
    first = 0
    for count in kept.counts:
        begins.append(len(starts))
        starts.extend(range(first, first + count, BLOCK))
        first += count
    windows: Maxima = np.maximum.reduceat(cosines(question, kept.tokens), starts, axis=0)
    whole = windows
    if len(starts) > len(begins):
        whole = np.maximum.reduceat(windows, begins, axis=0)
        # The last block of a text has no successor.
        after = np.arange(1, len(starts) + 1)
        after[[begin - 1 for begin in [*begins[1:], len(starts)]]] -= 1
        windows = np.maximum(windows, windows[after])
    weights = 1 + whole.max(axis=0) - 2 * whole.sum(axis=0) / len(whole)
    if (all_of_them := float(weights.sum())) <= 0:
        return [0.0] * len(begins)
    said: list[float] = np.maximum.reduceat(windows * windows @ (weights / all_of_them), begins).tolist()
    return said


def blended(scores: Sequence[float], said: Sequence[float], tokens: int) -> BlendWeights:
    """Scales the MaxSims of candidates to the range of their scores, with the weight for a question of `tokens` tokens.

        score = (1 - weight) · score + weight · value
        value = min(score) + range(score) · (said - min(said)) / range(said)
        weight = MAX_WEIGHT · HALF_WEIGHT_TOKENS / (HALF_WEIGHT_TOKENS + tokens)
            · min(1, range(said) / FULL_WEIGHT_RANGE)

    The ends are those of the scores, so that the lowest candidate stays above all hits that were not compared. The
    weight is 0 if the scores or the MaxSims are all equal.
    """
    least, most = min(scores, default=0.0), max(scores, default=0.0)
    low, high = min(said, default=0.0), max(said, default=0.0)
    if high - low <= EQUAL or most - least <= EQUAL:
        return BlendWeights(0.0, [0.0] * len(said))
    values = [least + (most - least) * (one - low) / (high - low) for one in said]
    return BlendWeights(
        MAX_WEIGHT * HALF_WEIGHT_TOKENS / (HALF_WEIGHT_TOKENS + tokens) * min(1.0, (high - low) / FULL_WEIGHT_RANGE),
        values,
    )


def compared(
    ranked: Sequence[Fused], question: Tokens, kept: StoredTokens, before: Mapping[UUID, Sequence[UUID]]
) -> tuple[list[Fused], dict[UUID, LateScore]]:
    """Blends the scores of the first `MAX_HITS` hits whose tokens are stored with their MaxSims. Short ones are read
    after the end of those `before` them.

    Returns the hits, best first, where equal scores keep their order, and the result for each compared hit. A hit
    without stored tokens keeps its score.

    The weight is that of `blended` times the square of the share of the question's tokens that are not numbers (numbers
    are zeros here). If half of a question is numbers, the numbers usually decide.
    """
    words = question[question.any(axis=1)]
    kept = in_context(kept, [hit.id for hit in ranked[:MAX_HITS]], before)
    if len(kept.ids) < 2 or not len(words):
        return list(ranked), {}
    known = set(kept.ids)
    read = [hit for hit in ranked[:MAX_HITS] if hit.id in known]
    said = maxsims(words, kept)
    weight, values = blended([hit.score for hit in read], said, len(question))
    weight *= (len(words) / len(question)) ** 2
    if not weight:
        return list(ranked), {}
    places = {at: place for place, at in enumerate(sorted(range(len(said)), key=lambda at: -said[at]), 1)}
    least, most = read[-1].score, read[0].score
    scored: dict[UUID, LateScore] = {}
    best: list[Fused] = []
    for hit in ranked[:MAX_HITS]:
        if hit.id not in known:
            best.append(hit)
            continue
        at = len(scored)
        lower = hit.scaled(1 - weight)
        # Rounding must not move a score beyond the ends.
        score = min(max(lower.score + weight * values[at], least), most)
        best.append(lower._replace(score=score, late=weight * values[at]))
        scored[hit.id] = LateScore(weight, values[at], said[at], places[at], lower.scale)
    # No compared hit falls below the lowest of them, so none falls below the rest.
    return [*sorted(best, key=lambda hit: -hit.score), *ranked[MAX_HITS:]], scored

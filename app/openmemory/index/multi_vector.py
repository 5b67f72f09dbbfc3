"""Multi-vector points: long texts, of which the best chunk counts.

The first chunk of a text is the point's vector without a name. The others are one multi-vector named `more`, compared
by MaxSim. So one point remains one memory: it is written, replaced, deleted and compared as a whole, and a client that
supports only the first vector (mem0's client) can search. A search queries both and merges the lists: the best hits of
either list contain the best of both.

Measured with 384 dimensions and 4-bit codes: one multi-vector for all chunks, where every point had one chunk, took 2.3
times as long as plain vectors among 10,000 points of a user, 2.9 times among 100,000. Searching `more` in addition to
the first took 1.1 to 1.2 times if there was none, and takes nothing now, since it is then skipped. The price is disk
space: the engine stores zeros for missing vectors, 4 bytes for each dimension. Several points for each memory would
search as fast as plain vectors, but a crash could leave chunks of an erased text behind, and a few long texts could
fill every place of an answer.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar
from uuid import UUID

import numpy as np

from openmemory.index.port import Hit, Vector, Vectors

T = TypeVar("T")

WORDS = "words"
"""The name of the sparse vector of a text's words (see `index.bm25`)."""

MORE = "more"
"""The name of the multi-vector for the chunks after the first."""


def vectors_by_name(vectors: Vectors) -> dict[str, Vector | Vectors]:
    """The vectors of a point in Qdrant's form: shape (chunks, dimension) → the first, and `more` if there are any."""
    result: dict[str, Vector | Vectors] = {"": vectors[0]}
    if len(vectors) > 1:
        result[MORE] = np.ascontiguousarray(vectors[1:])
    return result


def best(first: Iterable[Hit], more: Iterable[Hit], limit: int) -> list[Hit]:
    """The best hits of both lists, each id once, with its better score."""
    scores: dict[UUID, float] = {}
    for hit in (*first, *more):
        if scores.get(hit.id, -2.0) < hit.score:
            scores[hit.id] = hit.score
    return [Hit(*one) for one in sorted(scores.items(), key=lambda one: -one[1])[:limit]]


def chunks(items: Sequence[T], vectors: Callable[[T], int], most: int) -> Iterator[Sequence[T]]:
    """Splits the items into groups of at most `most` vectors. An item that has more is alone."""
    start = count = 0
    for at, item in enumerate(items):
        if at > start and count + vectors(item) > most:
            yield items[start:at]
            start, count = at, 0
        count += vectors(item)
    if start < len(items):
        yield items[start:]

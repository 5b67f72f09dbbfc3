"""The share of English texts that hold a word, from the packaged vocabulary. A small store cannot tell it.

The vocabulary of the packaged model is ordered by frequency, so the place of a word gives its frequency (Zipf 1949).
"""

from __future__ import annotations

import asyncio
from functools import cache

from openmemory.index.bm25 import idf

STORE = 200
"""The number of imagined texts that are counted with those of a store. Among two memories, only they tell how rare a
word is; among thousands, they tell little."""

_FIRST = 1_995
"""The place in the vocabulary before its first word. Signs and single letters come before it."""

_UNKNOWN = 60_000
"""The place of a word that the vocabulary does not contain: rarer than all that it does."""

_OFFSET = 20
"""Flattens the frequencies of the most common words, as in Mandelbrot's form of the law."""

_LENGTH = 20
"""The number of words of an imagined text."""

_ENDINGS = ("", "e", "s", "ed", "ing")
"""The endings that a stemmed word may lack."""


async def prepare() -> None:
    """Loads the vocabulary, the first time, without holding the event loop."""
    if not _places.cache_info().currsize:
        await asyncio.to_thread(_places)


@cache
def _places() -> dict[str, int]:
    # A service with another embedder does not load the packaged one's libraries before its first search.
    from openmemory.embeddings.local import vocabulary

    return {word: place - _FIRST for word, place in vocabulary().items() if place > _FIRST and word.isalnum()}


def commonness(lexeme: str) -> float:
    """The share of texts of usual length that contain a form of this lexeme, as far as the vocabulary tells."""
    places = _places()
    forms = [lexeme + ending for ending in _ENDINGS]
    if lexeme.endswith("i"):
        forms.append(f"{lexeme[:-1]}y")
    place = min((places[form] for form in forms if form in places), default=_UNKNOWN)
    return float(1 - (1 - 1 / (place + _OFFSET)) ** _LENGTH)


def smoothed_idf(documents: float, holding: float, lexeme: str) -> float:
    """The idf of a lexeme that so many of the documents contain, and as many of the imagined ones as usual."""
    return idf(documents + STORE, holding + STORE * commonness(lexeme))

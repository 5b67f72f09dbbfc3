"""What words that give orders to an assistant are.

They are looked for in lower-case text without accents, in which words stand one blank or line break apart. A blank in a
pattern means either. Quantifiers are bounded, so that a search is linear in the text.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple


class Told(Enum):
    """How words must stand in their sentence: "models tend to ignore previous instructions" orders nothing."""

    ANYHOW = auto()
    ADDRESSED = auto()
    """Not in a statement about somebody, and not forbidden: "the app never acts without asking the user"."""
    ORDERED = auto()
    """As an imperative: at the start of a sentence, after "please", after "you must" ..."""


class Phrase(NamedTuple):
    """Words that are orders, in steps that each begin within `within` characters of the end of the one before.

    Wherever they are, one of the `words` stands by itself, and of each group of `needles` one occurs.
    """

    words: frozenset[str]
    needles: tuple[tuple[str, ...], ...]
    steps: tuple[re.Pattern[str], ...]
    told: Told
    within: int


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(words.replace(" ", r"[ \n]"))


def phrase(words: str, needles: str, *steps: str, told: Told = Told.ORDERED, within: int = 0) -> Phrase:
    """The phrase of these `steps`; `words` stand apart by blanks, `needles` by bars, their groups by ampersands."""
    groups = tuple(tuple(group.split("|")) for group in needles.split("&") if group)
    return Phrase(frozenset(words.split()), groups, tuple(map(_pattern, steps)), told, within)

"""The structure of prompt injection patterns.

Patterns match lower-case text without accents, in which words are one blank or line break apart. A blank in a pattern
matches both. Quantifiers are bounded, so that a search is linear in the text.
"""

from __future__ import annotations

import re
from enum import Enum, auto
from typing import NamedTuple


class PhraseRole(Enum):
    """The required role of words in their sentence. "models tend to ignore previous instructions" is no instruction."""

    ANYHOW = auto()
    ADDRESSED = auto()
    """Not in a statement about someone, and not negated: "the app never acts without asking the user"."""
    ORDERED = auto()
    """Used as an imperative: at the start of a sentence, after "please", after "you must" ..."""


class Phrase(NamedTuple):
    """A pattern in steps. Each step begins within `within` characters of the end of the one before.

    Every match contains one of `words` as a separate word, and one string of each group of `needles`.
    """

    words: frozenset[str]
    needles: tuple[tuple[str, ...], ...]
    steps: tuple[re.Pattern[str], ...]
    role: PhraseRole
    within: int


def _pattern(words: str) -> re.Pattern[str]:
    return re.compile(words.replace(" ", r"[ \n]"))


def phrase(words: str, needles: str, *steps: str, role: PhraseRole = PhraseRole.ORDERED, within: int = 0) -> Phrase:
    """Builds a phrase from `steps`. `words` are separated by blanks, `needles` by bars, their groups by ampersands."""
    groups = tuple(tuple(group.split("|")) for group in needles.split("&") if group)
    return Phrase(frozenset(words.split()), groups, tuple(map(_pattern, steps)), role, within)

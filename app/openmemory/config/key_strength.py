"""Refuses keys that people make up where they should be random. Pure, and no message repeats any of one."""

from __future__ import annotations

import re
from itertools import pairwise

SHORTEST = 20
_DIFFERENT = 6
_LEFT = 12
"""Characters of a key besides words that everybody would try, and what separates them."""

_MAKE_ONE = "make one with `openssl rand -hex 32`"

_WORDS = re.compile(
    "correcthorsebatterystaple|qwertyuiop|qwertzuiop|asdfghjkl|zxcvbnm|change|replace|insert|enter|please|placeholder"
    "|example|sample|dummy|default|demo|test|todo|fixme|password|passwd|passphrase|secret|token|access|auth|bearer"
    "|private|secure|strong|random|string|value|text|very|super|long|short|some|thing|this|that|here|with|your|mine"
    "|not|the|for|key|api|pass|administrator|admin|root|user|owner|server|service|local|host|open|memory|mem0|letmein"
    "|welcome|hello|world|qwerty|foo|bar|baz|abc|xyz|xxx|1234"
)
_SEPARATORS = re.compile(r"[\s<>._-]+")


def checked(key: str) -> str:
    """The key, if nobody guesses it; an empty one is none.

    Raises:
        ValueError: it is too short, repeats itself, or consists of words that stand in for a key.
    """
    if not key:
        return key
    if len(key) < SHORTEST:
        raise ValueError(f"must have at least {SHORTEST} characters; {_MAKE_ONE}")
    plain = _SEPARATORS.sub("", key.lower())
    if len(set(plain)) < _DIFFERENT or _repeats(plain) or _counts(plain):
        raise ValueError(f"must not repeat or count the same few characters; {_MAKE_ONE}")
    if len(_WORDS.sub("", plain)) < _LEFT:
        raise ValueError(f"must not be made of words that stand in for a key; {_MAKE_ONE}")
    return key


def _repeats(text: str) -> bool:
    """Whether the same characters come again and again, from the first to the last."""
    return any(text[period:] == text[:-period] for period in range(1, len(text) // 2 + 1))


def _counts(text: str) -> bool:
    """Whether each character is as far from the one before as that from its own."""
    return len({ord(after) - ord(before) for before, after in pairwise(text)}) == 1

"""Rejects keys that people made up instead of generating at random. Pure; no message contains any part of a key."""

from __future__ import annotations

import re
from itertools import pairwise

MIN_KEY_LENGTH = 20
_DIFFERENT = 6
_LEFT = 12
"""Characters that a key must have left after removing separators and words that everybody would try."""

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
    """Returns the key if it is hard to guess. An empty key means that none is set.

    Raises:
        ValueError: it is too short, repeats itself, or consists of words that stand in for a key.
    """
    if not key:
        return key
    if len(key) < MIN_KEY_LENGTH:
        raise ValueError(f"must have at least {MIN_KEY_LENGTH} characters; {_MAKE_ONE}")
    plain = _SEPARATORS.sub("", key.lower())
    if len(set(plain)) < _DIFFERENT or _repeats(plain) or _counts(plain):
        raise ValueError(f"must not repeat or count the same few characters; {_MAKE_ONE}")
    if len(_WORDS.sub("", plain)) < _LEFT:
        raise ValueError(f"must not be made of placeholder words; {_MAKE_ONE}")
    return key


def _repeats(text: str) -> bool:
    """Returns True if the whole text is one sequence of characters repeated."""
    return any(text[period:] == text[:-period] for period in range(1, len(text) // 2 + 1))


def _counts(text: str) -> bool:
    """Returns True if consecutive characters always differ by the same amount."""
    return len({ord(after) - ord(before) for before, after in pairwise(text)}) == 1

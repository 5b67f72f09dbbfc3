"""Texts that as a whole are pairs, `key=value | key=value`: reading them, merging two, telling what changed. Pure.

A text is either wholly pairs or none at all. Where that is doubtful it is none: a text too many that is kept as it is
costs less than one that is taken apart.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from openmemory.memories.schemas import PairChange

LONGEST = 4_096
"""Characters of a text of pairs; a longer one is no pairs. The index of keys (`idx_memory_pairs`) knows it too."""

SHOWN = 80
"""Characters of a value that a sentence shows."""

_KEY = r"\w(?:[\w.-]{0,62}\w)?"
_PAIR = re.compile(rf"[ \t]*({_KEY})([ \t]*)=(?![=>])(.*)")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_QUOTED = re.compile(r'"[^"]*"')
_ASSIGNED = re.compile(rf"{_KEY}=.*")
_CODE = re.compile(r"[\w.]+\(.*\)|.*[;{\\]|.*\$[A-Za-z{(].*")
"""A call, a statement, a shell's variable."""
_SENTENCE = re.compile(r"\S+ (?:is|are|was|were|has|have|will|means|gives|holds|makes)\b.*", re.IGNORECASE)
_SEPARATORS = (None, ";", ",", "&")
"""What else stands between assignments: in logs, settings of connections, arguments, the queries of addresses."""

Pairs = dict[str, str]
"""Values by key, in the order of the text. Keys are in lower case."""


@dataclass(frozen=True, slots=True)
class Change:
    """A key whose value is another one now."""

    key: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Union:
    """Two texts of pairs as one, and what became of each key of the newer one."""

    text: str
    added: tuple[str, ...]
    changed: tuple[Change, ...]
    unchanged: tuple[str, ...]


def parsed(text: str) -> Pairs | None:
    """The pairs that a text consists of; None: it is something else.

    A key is a word of letters, digits, `_`, `.` and `-` with at least one letter, of 64 characters at most, no two of
    them alike but for their case. A value is what follows up to the next `|`, without the blanks around it: not empty,
    on one line. A single pair has no blank before its `=` and must not look like a line of code or a sentence.
    """
    if "=" not in text or len(text) > LONGEST:
        return None
    parts = text.strip().split("|")
    pairs: Pairs = {}
    for part in parts:
        found = _PAIR.fullmatch(part)
        if found is None or _UNPRINTABLE.search(part):
            return None
        key, blank, value = found[1].lower(), found[2], found[3].strip()
        if not value or key in pairs or not any(map(str.isalpha, key)):
            return None
        if len(parts) == 1 and (blank or _otherwise(part, value)):
            return None
        pairs[key] = value
    return pairs


def _otherwise(part: str, value: str) -> bool:
    """Whether a single pair is rather a line of code, a sentence, or assignments that are separated otherwise."""
    if _CODE.fullmatch(value) or _SENTENCE.fullmatch(value):
        return True
    bare = _QUOTED.sub('""', part)
    return any(_is_list(bare, separator) for separator in _SEPARATORS if separator != "&" or "?" not in bare)


def _is_list(text: str, separator: str | None) -> bool:
    pieces = [piece.strip() for piece in text.split(separator) if piece.strip()]
    return len(pieces) > 1 and all(_ASSIGNED.fullmatch(piece) for piece in pieces)


def merged(older: Pairs, newer: Pairs) -> Union:
    """The pairs of both in the order of the older, with what is new at the end; the values of the newer win."""
    return Union(
        text=" | ".join(f"{key}={value}" for key, value in (older | newer).items()),
        added=tuple(key for key in newer if key not in older),
        changed=tuple(Change(key, older[key], new) for key, new in newer.items() if older.get(key, new) != new),
        unchanged=tuple(key for key, value in newer.items() if older.get(key) == value),
    )


def told(changed: Sequence[PairChange]) -> str:
    """What changed in words: `changed: budget 50K -> 40K (was @claude 2025-02-20)`. Values are shortened."""
    each = (
        f"{one.key} {_short(one.old)} -> {_short(one.new)} (was @{one.was.app} {one.was.at:%Y-%m-%d})"
        for one in changed
    )
    return f"changed: {', '.join(each)}"


def _short(value: str) -> str:
    return value if len(value) <= SHOWN else f"{value[: SHOWN - 1]}…"

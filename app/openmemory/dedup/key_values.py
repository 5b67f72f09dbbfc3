"""Parses, merges and compares texts that consist only of key-value facts, `key=value | key=value`. Pure functions.

A text counts only if all of it has this form. In doubt it does not count: keeping one text too many unchanged costs
less than splitting a text by mistake.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple
from zoneinfo import ZoneInfo

from openmemory.content_policy.injection import instructs
from openmemory.memories.schemas import PairChange
from openmemory.serialization.zones import UTC_ZONE, day_shown

FACTS = "kv"
"""The field of the metadata that repeats the facts of a text, where a client stores them there too."""

MAX_TEXT_LENGTH = 4_096
"""The maximum length of a text of key-value facts. The index of keys (`idx_memory_key_values`) uses the same limit."""

MAX_CHARACTERS = 80
"""The maximum length of a value in a message."""

_KEY = r"\w(?:[\w.-]{0,62}\w)?"
_PAIR = re.compile(rf"[ \t]*({_KEY})([ \t]*)=(?![=>])(.*)")
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_QUOTED = re.compile(r'"[^"]*"')
_ASSIGNED = re.compile(rf"{_KEY}=.*")
_CODE = re.compile(r"[\w.]+\(.*\)|.*[;{\\]|.*\$[A-Za-z{(].*", re.DOTALL)
"""A function call, a statement or a shell variable."""
_SENTENCE = re.compile(r"\S+ (?:is|are|was|were|has|have|will|means|gives|holds|makes)\b.*", re.IGNORECASE)
_SEPARATORS = (None, ";", ",", "&")
"""Other separators of assignments: in logs, connection strings, arguments and URL queries."""

Pairs = dict[str, str]
"""Maps keys to values, in the order of the text. Keys are in lower case."""


class MergedFacts(NamedTuple):
    """The merged key-value facts of two texts, the added keys, and the changed ones with their old values."""

    text: str
    added: tuple[str, ...]
    changed: Pairs


def parsed(text: str) -> Pairs | None:
    """The key-value facts that a text consists of. None if the text has another form.

    A key consists of letters, digits, `_`, `.` and `-`. It has at least one letter and at most 64 characters. Keys must
    differ in more than case. A value extends to the next `|`, without surrounding blanks. It is not empty and fits on
    one line. A single fact has no blank before its `=` and must not look like a line of code or a sentence.
    """
    if "=" not in text or len(text) > MAX_TEXT_LENGTH:
        return None
    parts = text.strip().split("|")
    pairs: Pairs = {}
    for part in parts:
        match = _PAIR.fullmatch(part)
        if match is None or _UNPRINTABLE.search(part):
            return None
        key, blank, value = match[1].lower(), match[2], match[3].strip()
        if not value or key in pairs or not any(map(str.isalpha, key)):
            return None
        if len(parts) == 1 and (blank or _otherwise(part, value)):
            return None
        pairs[key] = value
    return pairs


def _otherwise(part: str, value: str) -> bool:
    """Returns True if a single fact is a line of code, a sentence, or a list with another separator."""
    if _CODE.fullmatch(value) or _SENTENCE.fullmatch(value):
        return True
    bare = _QUOTED.sub('""', part)
    return any(_is_list(bare, separator) for separator in _SEPARATORS if separator != "&" or "?" not in bare)


def _is_list(text: str, separator: str | None) -> bool:
    pieces = [piece.strip() for piece in text.split(separator) if piece.strip()]
    return len(pieces) > 1 and all(_ASSIGNED.fullmatch(piece) for piece in pieces)


def merged(older: Pairs, newer: Pairs) -> MergedFacts:
    """Merges both in the order of the older one, new keys last. Values of the newer one win."""
    return MergedFacts(
        text=" | ".join(f"{key}={value}" for key, value in (older | newer).items()),
        added=tuple(key for key in newer if key not in older),
        changed={key: older[key] for key, new in newer.items() if older.get(key, new) != new},
    )


def described(changed: Sequence[PairChange], zone: ZoneInfo = UTC_ZONE) -> str:
    """Describes the changes: `changed: budget 50K -> 40K (was @claude 2025-02-20)`. The dates are of the time
    zone `zone`.

    Shortens long values, and omits what reads like instructions: a note is read as text of this service.
    """
    each = (
        f"{one.key} {_excerpt(one.old)} -> {_excerpt(one.new)} (was @{_excerpt(one.was.app)}"
        f" {day_shown(one.was.at, zone)})"
        for one in changed
    )
    return f"changed: {', '.join(each)}"


def _excerpt(value: str) -> str:
    if instructs(value):
        return "…"
    return value if len(value) <= MAX_CHARACTERS else f"{value[: MAX_CHARACTERS - 1]}…"

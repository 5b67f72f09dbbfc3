"""The names that texts begin with: a second hop from the best hits.

"Where is the company of Alice's brother?" needs two memories: the one that names the company, and the one that says
where it is. The second shares no word with the question, but it often begins with its subject: a title, a heading, or a
name. So a text gains if one of the best hits contains the name that it begins with, and the question does not.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from openmemory.search.query_text import STOP_WORDS

BEST = 3
"""The number of best hits whose texts are read for names."""

_WORD = r"[^\W\d_a-z][\w\u2019'&.-]*"
_NAME = re.compile(rf"{_WORD}(?: (?:{_WORD}|\d+|of|the|and|de|von|van|la|du|di|for|in))*")
_BRACKETS = re.compile(r" \([^()]*\)$")
_NO_NAMES = STOP_WORDS | {"here", "there"}


def leading_name(head: str) -> str | None:
    """The name that a text begins with: its first line if that is short, or its first capitalised words.

    None if it begins with none, or with the name of a speaker.
    """
    title, line, _ = head.partition("\n")
    if line and title[:1].isupper() and not title.rstrip().endswith((".", "?", "!", ":")):
        return _BRACKETS.sub("", title.strip()) or None
    found = _NAME.match(head)
    if found is None or head[found.end() : found.end() + 1] == ":":
        return None
    words = found.group().split(" ")
    while words and words[0].casefold() in _NO_NAMES:
        words = words[1:]
    while words and words[-1][0].islower():
        words.pop()
    # One capitalised word at the start is seldom a name; the start of a sentence is capitalised. With a number,
    # it names one of many that say nearly the same.
    return " ".join(words).rstrip(".,;'") if sum(not word.isdigit() for word in words) > 1 else None


def led(heads: Iterable[tuple[int, str]], best: Sequence[tuple[int, str]], question: str) -> set[int]:
    """The texts, given by their places and first characters, that begin with a name which another of the `best` texts
    contains and the question does not."""
    if not best:
        return set()
    asked = question.casefold()
    names = ((place, name) for place, head in heads if (name := leading_name(head)) and name.casefold() not in asked)
    return {place for place, name in names if any(place != other and name in text for other, text in best)}

"""The names that texts begin with: what a text is about, and a second hop from the best hits.

A text is about the name that it begins with: a title, a heading, or a subject. It gains if the question contains that
name.

"Where is the company of Alice's brother?" needs two memories: the one that names the company, and the one that says
where it is. The second shares no word with the question, but it often begins with its subject. So a text also gains if
one of the best hits contains the name that it begins with, and the question does not.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from openmemory.search.query.text import STOP_WORDS

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
    match = _NAME.match(head)
    if match is None or head[match.end() : match.end() + 1] == ":":
        return None
    words = match.group().split(" ")
    while words and words[0].casefold() in _NO_NAMES:
        words = words[1:]
    while words and words[-1][0].islower():
        words.pop()
    # One capitalised word at the start is seldom a name; the start of a sentence is capitalised. With a number,
    # it names one of many with nearly the same text.
    return " ".join(words).rstrip(".,;'") if sum(not word.isdigit() for word in words) > 1 else None


def contains(text: str, name: str) -> bool:
    """True if the text contains the name, not as a part of a word. Both are in lower case."""
    at = text.find(name)
    while at >= 0:
        adjacent = text[max(0, at - 1) : at], text[at + len(name) : at + len(name) + 1]
        if not any(one.isalnum() for one in adjacent):
            return True
        at = text.find(name, at + 1)
    return False


def second_hop(names: Mapping[int, str], best: Sequence[tuple[int, str]]) -> set[int]:
    """The places of the texts that begin with a name which another of the `best` texts contains. `names` are those at
    the start of texts, and `best` the first texts, by their places."""
    return {place for place, name in names.items() if any(place != other and name in text for other, text in best)}

"""Analyses a query before PostgreSQL does: quoted phrases, the maximum number of lexemes, and corrections of misspelt
words. Has no side effects."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

MIN_WORD_LENGTH = 5
"""The minimum length of a word that may be misspelt. Shorter words are similar to too many others."""

MAX_WORD_LENGTH = 32
"""The maximum length of such a word. Longer runs of letters are not words, or are written without spaces."""

MAX_PHRASES = 4
"""The maximum number of phrases in a query; others are ignored."""

_STOP_WORDS = """
a about after all am an and any are as at be been before but by can did do does for from had has have he her him his
how i if in is it its me more my no not of on or our out over she should so some than that the their them then there
these they this to under up was we were what when where which who why will with you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English stop words, the most common ones in questions. They produce no lexeme and need no slot of a statement."""

_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|«([^»]+)»')
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_UNSPACED = re.compile(r"[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_DATE = re.compile(r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)|\d[-/.]\d\d?[-/.]\d", re.IGNORECASE)
_ADDED_BY_DATE = 5


def quoted(query: str) -> list[str]:
    """The phrases of at least two words in double quotes."""
    found = (next(filter(None, groups)) for groups in _QUOTED.findall(query))
    return [phrase for phrase in found if len(_PIECE.findall(phrase)) > 1 or _UNSPACED.search(phrase)][:MAX_PHRASES]


def lexemes(query: str) -> int:
    """The maximum number of lexemes of a query: its words without stop words, their parts, and what is added to
    them."""
    count = 0
    for token in query.split():
        pieces = _PIECE.findall(token)
        count += sum(piece.lower() not in STOP_WORDS for piece in pieces)
        # The token as a whole; for a version, also its first two numbers.
        count += (len(pieces) > 1) + (len(pieces) > 2) + ("+" in token or "#" in token)
        count += 0 if token.isascii() else len(pieces) + len(_UNSPACED.findall(token))
    return count + _ADDED_BY_DATE * len(_DATE.findall(query))


def unknown(query: str) -> list[str]:
    """The words of a query that may be misspelt if no memory contains them."""
    words = dict.fromkeys(word.lower() for word in re.findall(r"[^\W\d_]+", query))
    return [word for word in words if MIN_WORD_LENGTH <= len(word) <= MAX_WORD_LENGTH and word not in STOP_WORDS]


def meant(candidates: Iterable[tuple[str, str, str, int]]) -> list[str]:
    """The nearest lexeme for each word. The candidates are (word, its lexeme, another lexeme, memories that contain
    that).

    One error is allowed, two in words of eight letters or more: an extra, missing or wrong letter, or two swapped
    letters. The first letter must match. Of equally near lexemes, the one in most memories is chosen.
    """
    near: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for word, said, other, memories in candidates:
        slips = 2 if len(word) >= 8 else 1
        if other[:1] == said[:1] and (distance := _distance(said, other)) <= slips:
            near[word].append((distance, -memories, other))
    return list(dict.fromkeys(min(found)[2] for found in near.values()))


def _distance(one: str, other: str) -> int:
    """Optimal string alignment: Levenshtein's distance, with a swap of two neighbours as one error."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, a in enumerate(one, 1):
        row = [i]
        for j, b in enumerate(other, 1):
            cost = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a != b))
            if i > 1 and j > 1 and a == other[j - 2] and one[i - 2] == b:
                cost = min(cost, before[j - 2] + 1)
            row.append(cost)
        before, last = last, row
    return last[-1]

"""What is read in a query before PostgreSQL reads it: phrases in quotes, how many lexemes it may have, and which words
a misspelt one may mean. Pure."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

SHORTEST = 5
"""Letters of the shortest word that is taken for a misspelt one: shorter ones are like too many others."""

LONGEST = 32
"""Letters of the longest: longer runs of letters are no words, or are written without spaces."""

MOST_PHRASES = 4
"""Phrases of a query that are heeded."""

_STOP_WORDS = """
a about after all am an and any are as at be been before but by can did do does for from had has have he her him his
how i if in is it its me more my no not of on or our out over she should so some than that the their them then there
these they this to under up was we were what when where which who why will with you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""Words of which English makes no lexeme, those that questions are full of: they need no slot of a statement."""

_QUOTED = re.compile(r'"([^"]+)"|“([^”]+)”|„([^“”]+)[“”]|«([^»]+)»')
_PIECE = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_UNSPACED = re.compile(r"[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]")
_DATE = re.compile(r"\b(?:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)|\d[-/.]\d\d?[-/.]\d", re.IGNORECASE)
_ADDED_BY_DATE = 5


def quoted(query: str) -> list[str]:
    """The phrases that stand in double quotes, of two words and more."""
    found = (next(filter(None, groups)) for groups in _QUOTED.findall(query))
    return [phrase for phrase in found if len(_PIECE.findall(phrase)) > 1 or _UNSPACED.search(phrase)][:MOST_PHRASES]


def lexemes(query: str) -> int:
    """How many lexemes a query has at most: its words but for stop words, their parts, and what is added to them."""
    count = 0
    for token in query.split():
        pieces = _PIECE.findall(token)
        count += sum(piece.lower() not in STOP_WORDS for piece in pieces)
        # As a whole; of a version also the first two numbers.
        count += (len(pieces) > 1) + (len(pieces) > 2) + ("+" in token or "#" in token)
        count += 0 if token.isascii() else len(pieces) + len(_UNSPACED.findall(token))
    return count + _ADDED_BY_DATE * len(_DATE.findall(query))


def unknown(query: str) -> list[str]:
    """The words of a query that may be misspelt if no memory holds them."""
    words = dict.fromkeys(word.lower() for word in re.findall(r"[^\W\d_]+", query))
    return [word for word in words if SHORTEST <= len(word) <= LONGEST and word not in STOP_WORDS]


def meant(candidates: Iterable[tuple[str, str, str, int]]) -> list[str]:
    """For each word the lexemes that are nearest to it: (word, its lexeme, another lexeme, memories that hold that).

    One slip is forgiven, two in words of eight letters and more: a letter too many, missing, wrong, or two swapped. The
    first letter is right. Of lexemes that are equally near, the one in most memories.
    """
    near: dict[str, list[tuple[int, int, str]]] = defaultdict(list)
    for word, said, other, memories in candidates:
        slips = 2 if len(word) >= 8 else 1
        if other[:1] == said[:1] and (distance := _distance(said, other)) <= slips:
            near[word].append((distance, -memories, other))
    return list(dict.fromkeys(min(found)[2] for found in near.values()))


def _distance(one: str, other: str) -> int:
    """Optimal string alignment: Levenshtein's distance where two swapped neighbours are one slip."""
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

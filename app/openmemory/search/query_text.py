"""Reads a query before PostgreSQL does: quoted phrases, the maximum number of lexemes, and whether it is broad. Has no
side effects."""

from __future__ import annotations

import re

MAX_PHRASES = 4
"""The maximum number of phrases in a query; others are ignored."""

_STOP_WORDS = """
a about after all am an and any are as at be been before but by can did do does for from had has have he her him his
how i if in is it its me more my no not of on or our out over she should so some than that the their them then there
these they this to under up was we were what when where which who why will with you your
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
"""English stop words, the most common ones in questions. They produce no lexeme and need no slot of a statement."""

_ASKING_WORDS = """
anything details everything info information know list memories memory myself profile recall remember remembered said
say saved show stored summarise summarize summary tell things told user us
"""
_ASKING = frozenset(_ASKING_WORDS.split())
_REMNANTS = frozenset({"d", "ll", "m", "re", "s", "t", "ve"})
"""The letters that an apostrophe leaves of English words."""

_QUOTED = re.compile(r'"([^"]+)"|“([^“”]+)”|„([^„“”]+)[“”]|«([^«»]+)»')
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


def words(query: str) -> list[str]:
    """The words of a query, in lower case, without stop words."""
    found = re.findall(r"[^\W_]+", query.lower())
    return [word for word in found if word not in STOP_WORDS and word not in _REMNANTS]


def is_unspaced(word: str) -> bool:
    """Returns True for a word of a script that does not separate words by spaces."""
    return bool(_UNSPACED.search(word))


def is_broad(query: str) -> bool:
    """Returns True if the query names no subject: each of its words is a stop word or asks for memories as such, as in
    "what do you know about me?"."""
    return all(word in _ASKING for word in words(query))

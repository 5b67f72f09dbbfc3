"""Compares what the words of texts leave out: signs, symbols, emoji and the case of identifiers. Pure functions.

Two texts with the same words may say the opposite: `-300` and `300`, `a == b` and `a != b`, ✅ and ❌, `rm -r` and
`rm -R`. Whatever decides that two texts say the same compares them here. Everything counts that is not plain
punctuation: a sign that nobody has listed makes one memory too many, and none is lost.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import NamedTuple

_SUPERSCRIPT = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻⁼⁽⁾ⁿⁱ]+")
_DASHES = re.compile("[\u2010-\u2015\u2212]")
_ARROWS = str.maketrans(dict.fromkeys("→⟶➔➜", "->") | dict.fromkeys("←⟵", "<-") | dict.fromkeys("⇒⟹", "=>"))
_INVISIBLE = re.compile("[\u00ad\u034f\u200b-\u200f\u202a-\u202e\u2060-\u2064\u2066-\u2069\ufe00-\ufe0f\ufeff]")
_LIST_OR_HEADING = re.compile(r"^[ \t]*(?:[-*+•]|#{1,6})[ \t]++(?!\d)", re.MULTILINE)
_EMPHASIS = re.compile(r"(?<![\w*])(\*{1,3})(?=\w)([^*\n]*)(?<=[\w.!?])\1(?![\w*])")
_TOKEN = re.compile(r"\d+(?:[.,:/\-]\d+)*|[^\W\d_]+(?:'[^\W\d_]+)*|\s+|(?:[^\w\s]|_)+")
_THOUSANDS = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?")
_QUOTES = str.maketrans(dict.fromkeys("\"'`´“”„‟‘’‚‛«»‹›「」『』《》〈〉【】"))
_OPENING_QUOTE = re.compile(r"(?<![^\s(\[{=:])[\"']")
_PRIME = re.compile(r"(?<=\d)[\"'](?!\w)")
_PRIMES = {"'": "′", '"': "″"}
_OF_NUMBERS = re.compile("[%°\u0024\u00a2-\u00a5\u20a0-\u20cf]")
"""Signs that belong to the number beside them. Numbers are compared with their units."""

_ENDS = ".,;:!…·。、"
_PAUSES = ",;…·•¡¿。、"
_PUNCTUATION = frozenset(_ENDS + _PAUSES + "-")
_ANY_CASE = frozenset({"am", "pm"})


class Spelling(NamedTuple):
    """The words of a text in order, with the case of identifiers only, and its signs with the words beside them.

    `units`: the signs of numbers, such as those of currencies, in order.
    """

    words: tuple[str, ...]
    units: tuple[str, ...]
    signs: frozenset[tuple[tuple[str, str, str], int]]

    def differs(self, other: Spelling) -> bool:
        """Returns True if the texts have different signs, or write an identifier that both have in another case."""
        if self.signs != other.signs:
            return True
        mine, theirs = _forms(self.words), _forms(other.words)
        return any(not mine[word] & theirs[word] for word in mine.keys() & theirs.keys())


def spelling(text: str) -> Spelling:
    """The spelling of a text. Texts with one spelling differ in punctuation, quotes, blanks and plain case only."""
    plain = _EMPHASIS.sub(r"\2", _LIST_OR_HEADING.sub("", normalized(text)))
    opened = set(_OPENING_QUOTE.findall(plain))
    plain = _PRIME.sub(lambda match: match[0] if match[0] in opened else _PRIMES[match[0]], plain)
    tokens = ["", "", *_TOKEN.findall(_without_brackets(plain)), "", ""]
    words = (_form(token) for token in tokens if token[:1].isalnum())
    return Spelling(tuple(words), tuple(_OF_NUMBERS.findall(plain)), frozenset(Counter(_signs(tokens)).items()))


def normalized(text: str) -> str:
    """A text in its compatibility form, with one kind of apostrophe, dash and arrow. `10³` does not become `103`."""
    text = _SUPERSCRIPT.sub(r"^\g<0>", _INVISIBLE.sub("", text))
    return _DASHES.sub("-", unicodedata.normalize("NFKC", text)).replace("’", "'").translate(_ARROWS)


def _without_brackets(text: str) -> str:
    """The text without the round brackets that hold words. Those of calls, intervals and negative amounts stay."""
    letters = [*accumulate(map(str.isalpha, text), initial=0)]
    opened: list[int] = []
    plain: list[int] = []
    for place, letter in enumerate(text):
        if letter == "(":
            opened.append(place)
        elif letter == ")" and opened:
            begin = opened.pop()
            if letters[place] > letters[begin] and not text[begin - 1 : begin].isalnum():
                plain += begin, place
    letters_of_text = [*text]
    for place in plain:
        letters_of_text[place] = " "
    return "".join(letters_of_text)


def _signs(tokens: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """The signs between the words, each with the words that it is attached to, or else with those around it."""
    for place in range(2, len(tokens) - 2):
        token = tokens[place]
        if token[0].isalnum() or token.isspace():
            continue
        before, after = tokens[place - 1], tokens[place + 1]
        left, right = before[:1].isalnum(), after[:1].isalnum()
        if not left and "\n" not in before:
            before = tokens[place - 2]
        if not right and "\n" not in after:
            after = tokens[place + 2]
        sign = token.translate(_QUOTES)
        if before[-1:].isdigit() or after[:1].isdigit():
            sign = _OF_NUMBERS.sub("", sign)
        sign = _counting(sign if right else sign.rstrip(_ENDS), before, after, left=left, right=right)
        if not sign:
            continue
        if left and right:
            yield _number(before), sign, _number(after)
        elif right:
            yield "", sign, _number(after)
        elif left:
            yield _number(before).casefold(), sign, ""
        else:
            around = [_number(each).casefold() if each[:1].isalnum() else "" for each in (before, after)]
            yield around[0], sign, around[1]


def _counting(sign: str, before: str, after: str, *, left: bool, right: bool) -> str:
    """The part of a sign that is more than punctuation, by the sides on which a word is attached to it."""
    numbers = before[-1:].isdigit() and after[:1].isdigit()
    if not left and not right and sign == "&":
        return ""  # "and"
    if not all(letter in _PUNCTUATION for letter in sign):
        return sign
    if left and right:
        return "" if not numbers and sign.strip("-" + _PAUSES) in ("", "...") else sign
    if right:
        return sign.strip(_PAUSES).removeprefix("...")
    if left:
        return sign if "-" in sign else ""
    return sign if numbers and sign == "-" else ""


def _form(token: str) -> str:
    """A word as it is compared: in lower case, if its case says nothing more than that it is a name or comes first."""
    folded = _number(token).casefold()
    return token if any(map(str.isupper, token[1:])) and folded not in _ANY_CASE else folded


def _number(token: str) -> str:
    return token.replace(",", "") if _THOUSANDS.fullmatch(token) else token


def _forms(words: Iterable[str]) -> dict[str, set[str]]:
    """Maps each word to the ways in which it is written."""
    forms: dict[str, set[str]] = {}
    for word in words:
        forms.setdefault(word.casefold(), set()).add(word)
    return forms

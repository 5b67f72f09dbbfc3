"""Decides if two texts with similar vectors say the same. Pure functions.

Vectors of short texts hardly distinguish "Tuesday" from "Thursday", "likes" from "does not like" or Alice from Bob. Two
memories often differ in only one word. Similar texts are therefore compared word by word, and count as the same only
without such a difference. In doubt they are different: one memory too many costs less than a lost one. The word lists
are English. In other languages, differences in numbers, names, negations and single replaced words are still detected.
"""

from __future__ import annotations

import re
from collections import Counter
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from openmemory.dedup.english_words import (
    AGENT,
    APART,
    CHANGE,
    CONTRARY,
    FORMER,
    FUNCTION,
    GRAMMAR,
    LIMITING,
    NAMING,
    NUMBERS,
    ORDERING,
    RELATIONS,
    ROLES,
    SYNONYMS,
    UNCERTAIN,
    UNITS,
    USER,
)
from openmemory.dedup.negations import Negations, negations
from openmemory.dedup.spelling import Spelling, normalized, spelling
from openmemory.embeddings.port import PACKAGED

MIN_SIMILARITY = {PACKAGED: 0.75}
"""The minimum cosine similarity of two texts that may say the same, by model. `python -m benchmarks.likeness` shows
the effect of each value for the packaged model."""

MAX_TEXT_LENGTH = 1_000
"""The maximum length of texts that are compared. The vector of a longer text is only an average of its subjects."""

MORE_WORDS = 3
"""A new text with this many more words of its own than the old one has says something additional."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
_QUOTED = re.compile(r"\"([^\"]{1,100})\"|“([^”]{1,100})”|«([^»]{1,100})»|`([^`]{1,100})`|(?<!\w)'([^']{2,100})'(?!\w)")
# Paths, addresses, versions, snake_case, kebab-case with digits, camelCase.
_IDENTIFIER = re.compile(
    r"(?<!\w)(?:\w+(?:(?:[_@/\\:]|\.(?=\w)|::)\w+)+|[^\Wa-z]*+[a-z][^\WA-Z]*+[A-Z]\w*|\w*[A-Za-z]-?\d\w*)"
    r"|--?[a-z][\w-]+|(?<=[\s(])[/~.]+[\w./-]+"
)
_CURRENCY = "[$¢-¥₠-⃏]"
_UNIT = rf"%|{_CURRENCY}|°?[^\W\d_]+"
_NUMBER = re.compile(rf"({_CURRENCY})?\s?(\d+(?:[.,:/\-]\d+)*)(?:({_UNIT})|[ \-]({_UNIT}))?")
_LOOK_BACK = 40
_SUFFIXES = ("ingly", "ing", "edly", "ed", "ies", "ied", "es", "s", "ly")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_SCALES = {"k": 1_000, "thousand": 1_000, "m": 1_000_000, "million": 1_000_000, "bn": 10**9, "billion": 10**9}
_ACTING = re.compile(r"(?<![\w-])(?<!\w')([A-Z]\w*(?:['-]\w+)*+'?) (?=([a-z']+))")
_USED_TO = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bget )(?<!\bgot )(?<!\bbe )\bused to\b", re.IGNORECASE)
_UNSEPARATED = re.compile("[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af]")
_TAKEOVER = re.compile(r"\b(?:took|takes|taken) over\b|\bno longer\b|\bfrom now on\b", re.IGNORECASE)
_TITLES = ("Dr", "Mr", "Mrs", "Ms", "Prof", "St")
_ELIDED = re.compile(r"(?:[cdjlmnst]|qu)'(?=[^\W\d_]{2})")
_PRESENT, _PAST = frozenset({"is", "are", "am", "'s"}), frozenset({"was", "were"})


class Relation(StrEnum):
    """The relation of a newer text to an older one."""

    SAME = "same"
    """It says the same, or less."""
    MORE = "more"
    """It says the same, and more."""


class TextComparison(NamedTuple):
    """The result of a comparison. If the texts say different things, `relation` is None and `because` says why."""

    relation: Relation | None
    because: str = ""


def compare(old: str, new: str) -> TextComparison:
    """Compares the content of two texts with similar vectors: `compared` of their features."""
    return compared(ComparedText(old), ComparedText(new))


def compared(before: ComparedText, after: ComparedText) -> TextComparison:
    """Compares the content of two texts with similar vectors.

    Possible differences: `number`, `negation`, `name`, `limit` (only, rarely, less), `certainty` (plans and wishes),
    `change` (one says that something changed), `time` (past and present), `opposite`, `who`, `sign` (a sign, a symbol,
    or the case of an identifier), `order` (who does what to whom), `word` (one was replaced), `besides` (each text says
    something that the other does not).
    """
    if before.spelling == after.spelling:
        return TextComparison(Relation.SAME)
    because = contrary(before, after)
    if not because:
        only_old, only_new = before.content - after.content, after.content - before.content
        because = (_apart if only_old and only_new else _rearranged)(before, after, only_old, only_new)
    if because:
        return TextComparison(None, because)
    more = not only_old and (only_new or after.numbers - before.numbers)
    return TextComparison(Relation.MORE if more else Relation.SAME)


class ComparedText:
    """A text and its features for the comparison, each computed on first use."""

    def __init__(self, text: str) -> None:
        self.text = normalized(text)

    @cached_property
    def spelling(self) -> Spelling:
        """The signs of the text, and the case of its identifiers."""
        return spelling(self.text)

    @cached_property
    def words(self) -> list[str]:
        """All words in order, in lower case."""
        return [match.group().casefold() for match in _WORD.finditer(self.text)]

    @cached_property
    def every(self) -> frozenset[str]:
        """All words, and their stems."""
        return frozenset(self.words) | frozenset(map(_canonical, self.words))

    @cached_property
    def sequence(self) -> list[str]:
        """The content words in order, stemmed and with synonyms replaced by one word."""
        return [
            _canonical(word)
            for word in self.words
            if not word[0].isdigit()
            and word not in NUMBERS
            and _bare(word) not in FUNCTION
            and word not in GRAMMAR
            and not word.endswith("n't")
        ]

    @cached_property
    def content(self) -> frozenset[str]:
        return frozenset(self.sequence)

    @cached_property
    def numbers(self) -> Counter[str]:
        """Numbers with their units, dates, times and versions, each as one normalized string."""
        return Counter(
            _number(currency, digits, joined or "", apart or "")
            for currency, digits, joined, apart in _NUMBER.findall(_WORD.sub(_in_digits, self.text))
        )

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Technical identifiers and quoted strings, in lower case."""
        quoted = (next(filter(None, groups)) for groups in _QUOTED.findall(self.text))
        return frozenset(each.casefold().strip("./:") for each in (*quoted, *_IDENTIFIER.findall(self.text)))

    @cached_property
    def names(self) -> tuple[list[str], frozenset[str]]:
        """Capitalised words that look like names, in order, and those of them that begin a sentence."""
        names, first = [], set()
        for match in _WORD.finditer(self.text):
            word = match.group()
            bare = _bare(word.casefold())
            if not word[0].isupper() or bare in FUNCTION:
                continue
            if (
                _begins_sentence(self.text[max(0, match.start() - _LOOK_BACK) : match.start()])
                and not word[1:2].isupper()
            ):
                following = _WORD.match(self.text, match.end() + 1)
                if not (word.endswith("'s") or (following and following.group() in NAMING)):
                    continue
                first.add(_canonical(bare))
            names.append(_canonical(bare))
        return names, frozenset(first)

    @cached_property
    def arguments(self) -> list[str]:
        """The content words, and the user where the user is subject or object, not only a possessor."""
        return [
            "\0user" if word in USER else _canonical(word)
            for word in self.words
            if word in USER or (_bare(word) not in FUNCTION and word not in GRAMMAR)
        ]

    @cached_property
    def relations(self) -> dict[str, str]:
        """Maps each of these words to the preposition before it. Articles and similar words in between are ignored."""
        result: dict[str, str] = {}
        relation = ""
        for word in self.words:
            if word in RELATIONS:
                relation = word
            elif word in USER or (_bare(word) not in FUNCTION and word not in GRAMMAR):
                result.setdefault("\0user" if word in USER else _canonical(word), relation)
                relation = ""
        return result

    @cached_property
    def acting(self) -> frozenset[str]:
        """The names that are the subject of a verb."""
        return frozenset(
            _canonical(_bare(match.group(1).casefold()))
            for match in _ACTING.finditer(self.text)
            if match.group(2) in NAMING and _bare(match.group(1).casefold()) not in FUNCTION
        )

    @cached_property
    def roles(self) -> frozenset[str]:
        """The persons other than the user that the text is about."""
        return frozenset(map(_canonical, self.words)) & _ROLES

    @cached_property
    def negations(self) -> Negations:
        """The negations of the text, and what they deny."""
        return negations(self.text, self.content, _canonical)

    @cached_property
    def unseparated(self) -> bool:
        """The text has letters of a script without blanks between words."""
        return _UNSEPARATED.search(self.text) is not None

    def has(self, some: frozenset[str]) -> frozenset[str]:
        """Those of the words that occur in the text."""
        return some & self.every


def contrary(old: ComparedText, new: ComparedText) -> str:
    """A difference that counts whatever else the texts say. Empty if there is none."""
    checks: tuple[tuple[str, bool], ...] = (
        ("limit", bool(old.has(LIMITING)) != bool(new.has(LIMITING))),
        ("certainty", bool(old.has(UNCERTAIN)) != bool(new.has(UNCERTAIN))),
        ("negation", old.negations.differ(new.negations)),
        ("number", _exclusive(old.numbers, new.numbers)),
        ("name", _exclusive(old.identifiers, new.identifiers) or _is_renamed(old, new)),
        ("who", old.roles != new.roles),
        ("opposite", opposites(old, new)),
        ("change", _changes(old) != _changes(new)),
        ("time", _over(old) != _over(new) or _tense(old, new)),
        ("sign", old.spelling.differs(new.spelling)),
    )
    return next((because for because, differs in checks if differs), "")


def opposites(old: ComparedText, new: ComparedText) -> bool:
    """Returns True if each text has a word that excludes one of the other, such as Tuesday and Friday."""
    return any(_exclusive(_members(old, groups), _members(new, groups)) for groups in _APART)


def _apart(old: ComparedText, new: ComparedText, only_old: frozenset[str], only_new: frozenset[str]) -> str:
    """The difference between two texts that each have words of their own. Empty if they only differ in wording."""
    if old.numbers != new.numbers:
        return "number"
    if set(old.names[0]) - new.every or set(new.names[0]) - old.every or old.identifiers != new.identifiers:
        return "name"
    shared = old.content & new.content
    if not shared or len(only_new) - len(only_old) >= MORE_WORDS:
        return "besides"
    if _is_turned(old, new):
        return "order"
    return "word" if _is_replaced(old.sequence, new.sequence) else ""


def _rearranged(old: ComparedText, new: ComparedText, only_old: frozenset[str], only_new: frozenset[str]) -> str:
    """The difference between two texts of which one has all words of the other. Empty if it says the same."""
    if (only_new or new.numbers - old.numbers) and (only_old or old.numbers - new.numbers):
        return "number"
    if (only_new or only_old) and not _within(old, new):
        return "order"
    return "order" if _is_turned(old, new) else ""


def _exclusive(old: Any, new: Any) -> bool:
    """Returns True if each of two sets has something that the other lacks."""
    return bool(old - new) and bool(new - old)


def _is_renamed(old: ComparedText, new: ComparedText) -> bool:
    """Returns True if each text has a name that the other lacks, or if a sentence begins with such a name."""
    (mine, first), (theirs, first_of_theirs) = old.names, new.names
    missing, others = set(mine) - new.every, set(theirs) - old.every
    if missing and others:
        return True
    if (first & missing) or (first_of_theirs & others):
        return True
    # "Alice taught Bob" and "Bob taught Alice".
    both = [name for name in mine if name in theirs], [name for name in theirs if name in mine]
    return len(set(both[0])) > 1 and list(dict.fromkeys(both[0])) != list(dict.fromkeys(both[1])) and not _is_list(old)


def _is_list(text: ComparedText) -> bool:
    """Returns True if names are in a list, where the order has no meaning."""
    return bool(re.search(r"\b[A-Z]\w+,? (and|or|&) [A-Z]\w+", text.text))


def _begins_sentence(before: str) -> bool:
    """Returns True if a sentence or an item of a list begins after this text."""
    before = before.rstrip("\"'“(")
    rest = before.rstrip()
    if rest.endswith(".") and rest[:-1].endswith(_TITLES):
        return False
    after_end = rest[-1:] in (*".!?;:", "") or "\n" in before[len(rest) :]
    return after_end or (rest[-1] in "-*•" and rest != before)


def _over(text: ComparedText) -> bool:
    """Returns True if the text says that something is over."""
    return bool(text.has(FORMER)) or _USED_TO.search(text.text) is not None


def _changes(text: ComparedText) -> bool:
    """Returns True if the text says that something has changed."""
    return bool(CHANGE & set(text.words)) or _TAKEOVER.search(text.text) is not None


def _tense(old: ComparedText, new: ComparedText) -> bool:
    """Returns True if one text is about the past and the other about the present."""
    for one, other in ((old, new), (new, old)):
        if one.has(_PAST) and not one.has(_PRESENT) and other.has(_PRESENT) and not other.has(_PAST):
            return True
        past = {_canonical(word) for word in one.words if word.endswith("ed")}
        present = {_canonical(word) for word in other.words if word.endswith("s") and not word.endswith("ss")}
        if any(word in past and word in present for word in past & present):
            verbs_of_other = {_canonical(word) for word in other.words if word.endswith(("ed", "ing"))}
            if (past & present) - verbs_of_other:
                return True
    return False


def _is_turned(old: ComparedText, new: ComparedText) -> bool:
    """Returns True if words have moved to the other side of a word, or follow a contradicting preposition."""
    before, after = old.relations, new.relations
    if any({before[word], after[word]} in CONTRARY for word in before.keys() & after.keys()):
        return True
    for word in ORDERING:
        if word in old.words and word in new.words and _crossed_words(_sides(old, word), _sides(new, word)):
            return True
    mine, theirs = old.arguments, new.arguments
    moves = (_crossed_words(_around(mine, word), _around(theirs, word)) for word in set(mine) & set(theirs))
    # "The site is hosted on Netlify" and "Netlify hosts the site" say the same.
    return any(
        any(before.get(each) in AGENT for each in moved) == any(after.get(each) in AGENT for each in moved)
        for moved in moves
        if moved
    )


def _crossed_words(old: tuple[set[str], set[str]], new: tuple[set[str], set[str]]) -> set[str]:
    """The words that moved between left and right, if words moved in both directions."""
    (left, right), (left_of_new, right_of_new) = old, new
    there, back = (left - right) & (right_of_new - left_of_new), (right - left) & (left_of_new - right_of_new)
    return there | back if there and back else set()


def _around(words: list[str], word: str) -> tuple[set[str], set[str]]:
    at = words.index(word)
    return set(words[:at]), set(words[at + 1 :])


def _within(old: ComparedText, new: ComparedText) -> bool:
    """Returns True if the longer text has the words of the shorter one in the same order, with the same acting persons.

    "Alice likes tea" is not within "Bob likes tea and Alice likes coffee".
    """
    short, long = sorted((old, new), key=lambda text: len(text.sequence))
    rest = iter(long.sequence)
    return all(word in rest for word in short.sequence) and long.acting == short.acting


def _sides(text: ComparedText, word: str) -> tuple[set[str], set[str]]:
    at = text.words.index(word)
    sides = text.words[:at], text.words[at + 1 :]
    left, right = ({_canonical(one) for one in side if _bare(one) not in FUNCTION} for side in sides)
    return left, right


def _members(text: ComparedText, groups: tuple[frozenset[str], ...]) -> set[int]:
    """The numbers of the word sets, which exclude each other, that occur in the text."""
    return {number for number, group in enumerate(groups) if text.every & group}


def _is_replaced(old: list[str], new: list[str]) -> bool:
    """Returns True if both are the same sentence in which adjacent words were replaced by others."""
    before = next((place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    rest, other_rest = old[before:], new[before:]
    pairs = enumerate(zip(reversed(rest), reversed(other_rest), strict=False))
    after = next((place for place, (one, other) in pairs if one != other), 0)
    return not set(rest[: len(rest) - after]) & set(other_rest[: len(other_rest) - after])


def _in_digits(word: re.Match[str]) -> str:
    return NUMBERS.get(word.group().casefold(), word.group())


def _number(currency: str, digits: str, joined: str, apart: str) -> str:
    unit = apart.casefold()
    unit = joined.casefold() or (unit if unit in UNITS or unit in _SCALES or not unit[:1].isalpha() else "")
    if _THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", "")
    if unit in _SCALES and digits.replace(".", "", 1).isdigit():
        digits, unit = f"{float(digits) * _SCALES[unit]:.10g}", ""
    elif digits.isdigit():
        digits = f"{float(digits):.10g}" if len(digits) < 10 else digits
    return f"{digits.strip('-/.,:')} {UNITS.get(currency, UNITS.get(unit, unit))}".strip()


def _bare(word: str) -> str:
    return _ELIDED.sub("", word.removesuffix("'s").removesuffix("'"), count=1) if "'" in word else word


def _canonical(word: str) -> str:
    """The stem of a word, or the representative of its synonyms."""
    word = _bare(word)
    if (representative := SYNONYMS.get(word)) is not None:
        return representative
    stem = _stem(word)
    return SYNONYMS.get(stem, stem)


def _stem(word: str) -> str:
    """Removes English inflections, so that two forms of a word get the same stem."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(suffix) + ("y" if suffix in ("ies", "ied") else "")
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


_ROLES = frozenset(map(_canonical, ROLES))
_APART = tuple(tuple(group | frozenset(map(_canonical, group)) for group in groups) for groups in APART)

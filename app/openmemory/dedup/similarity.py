"""Whether two texts that a model finds near to each other say the same thing. Pure.

Vectors of short texts hardly know "Tuesday" from "Thursday", "likes" from "does not like" or Alice from Bob: what sets
two memories apart is often one word. So texts that are near are compared word by word, and are held to say the same
only if nothing of that sort is different. In doubt they say different things: a memory too many costs less than one
that is lost. The words are English; in other languages numbers, names, negations and single words that were replaced
are told apart all the same.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from enum import StrEnum
from functools import cached_property
from typing import Any, NamedTuple

from openmemory.dedup.term_overlap import (
    AGENT,
    APART,
    CONTRARY,
    FORMER,
    FUNCTION,
    GRAMMAR,
    LIMITING,
    NAMING,
    NEGATIONS,
    NUMBERS,
    ORDERING,
    RELATIONS,
    ROLES,
    SYNONYMS,
    UNCERTAIN,
    UNITS,
    USER,
)
from openmemory.embeddings.port import PACKAGED

LIKENESS = {PACKAGED: 0.75}
"""Cosines from which on two texts may say the same, by model. `python -m benchmarks.likeness` shows what each means for
the packaged one."""

LONGEST = 1_000
"""Characters of the longest text that is compared: the vector of a longer one says what it is about on average."""

MORE_WORDS = 3
"""A new text that has so many words more of its own than the old one has says something besides."""

_WORD = re.compile(r"[^\W_]+(?:['’][^\W\d_]+)?")
_QUOTED = re.compile(r"\"([^\"]{1,100})\"|“([^”]{1,100})”|«([^»]{1,100})»|`([^`]{1,100})`|(?<!\w)'([^']{2,100})'(?!\w)")
# Paths, addresses, versions, snake_case, kebab-case with digits, camelCase.
_IDENTIFIER = re.compile(
    r"\w+(?:(?:[_@/\\:]|\.(?=\w)|::)\w+)+|--?[a-z][\w-]+|\w*[a-z]\w*[A-Z]\w*|\w*[A-Za-z]-?\d\w*|(?<=[\s(])[/~.]+[\w./-]+"
)
_NUMBER = re.compile(r"([$€£¥₹])?\s?(\d+(?:[.,:/\-]\d+)*)(?:(%|°?[^\W\d_]+)|[ \-](%|[^\W\d_]+))?")
_SENTENCE = re.compile(r"(?:^|[.!?;:\n]\s*|[-*•]\s+)[\"'“(]*$")
_SUFFIXES = ("ingly", "ing", "edly", "ed", "ies", "ied", "es", "s", "ly")
_THOUSANDS = re.compile(r"\d{1,3}(,\d{3})+(\.\d+)?")
_SCALES = {"k": 1_000, "thousand": 1_000, "m": 1_000_000, "million": 1_000_000, "bn": 10**9, "billion": 10**9}
_ACTING = re.compile(r"\b([A-Z][\w'-]*) (?=([a-z']+))")
_USED_TO = re.compile(r"(?<!\bis )(?<!\bare )(?<!\bget )(?<!\bgot )(?<!\bbe )\bused to\b", re.IGNORECASE)
_PRESENT, _PAST = frozenset({"is", "are", "am", "'s"}), frozenset({"was", "were"})


class Said(StrEnum):
    """What a newer text says of what an older one says."""

    SAME = "same"
    """The same, or less."""
    MORE = "more"
    """All of it, and more."""


class Judgement(NamedTuple):
    """`said` is None if they say different things; then `because` names the difference."""

    said: Said | None
    because: str = ""


def judged(old: str, new: str) -> Judgement:
    """What `new` says of what `old` says, for texts that a model finds near to each other.

    The differences: `number`, `negation`, `name`, `limit` (only, rarely, less), `certainty` (plans and wishes), `time`
    (what was, and what is), `opposite`, `who`, `order` (who does what to whom), `word` (one was replaced), `besides`
    (both say something that the other does not).
    """
    if _plain(old) == _plain(new):
        return Judgement(Said.SAME)
    before, after = _Text(old), _Text(new)
    because = _contrary(before, after)
    if not because:
        only_old, only_new = before.content - after.content, after.content - before.content
        because = (_apart if only_old and only_new else _rearranged)(before, after, only_old, only_new)
    if because:
        return Judgement(None, because)
    more = not only_old and (only_new or after.numbers - before.numbers)
    return Judgement(Said.MORE if more else Said.SAME)


class _Text:
    """A text with what it is compared by, each worked out when it is needed."""

    def __init__(self, text: str) -> None:
        self.text = unicodedata.normalize("NFKC", text).replace("’", "'")

    @cached_property
    def words(self) -> list[str]:
        """All words in order, in lower case."""
        return [match.group().casefold() for match in _WORD.finditer(self.text)]

    @cached_property
    def every(self) -> frozenset[str]:
        """All words and their parts without endings."""
        return frozenset(self.words) | frozenset(map(_canonical, self.words))

    @cached_property
    def sequence(self) -> list[str]:
        """The words that carry what is said, without endings and in one of the words that mean the same, in order."""
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
        """Numbers with their units, dates, times and versions, each as one string, written in one way."""
        return Counter(
            _number(currency, digits, joined or "", apart or "")
            for currency, digits, joined, apart in _NUMBER.findall(_WORD.sub(_in_digits, self.text))
        )

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Names of machines' things and what stands in quotes, in lower case."""
        quoted = (next(filter(None, groups)) for groups in _QUOTED.findall(self.text))
        return frozenset(each.casefold().strip("./:") for each in (*quoted, *_IDENTIFIER.findall(self.text)))

    @cached_property
    def named(self) -> tuple[list[str], frozenset[str]]:
        """Words that are written as names, in order, and those of them that begin a sentence."""
        names, first = [], set()
        for match in _WORD.finditer(self.text):
            word = match.group()
            bare = _bare(word.casefold())
            if not word[0].isupper() or bare in FUNCTION:
                continue
            if _SENTENCE.search(self.text[: match.start()]) and not word[1:2].isupper():
                following = _WORD.match(self.text, match.end() + 1)
                if not (word.endswith("'s") or (following and following.group() in NAMING)):
                    continue
                first.add(_canonical(bare))
            names.append(_canonical(bare))
        return names, frozenset(first)

    @cached_property
    def arguments(self) -> list[str]:
        """The words that carry what is said, and the user where they are not just the owner of something."""
        return [
            "\0user" if word in USER else _canonical(word)
            for word in self.words
            if word in USER or (_bare(word) not in FUNCTION and word not in GRAMMAR)
        ]

    @cached_property
    def relations(self) -> dict[str, str]:
        """For each such word the preposition that it follows, beside articles and the like."""
        found: dict[str, str] = {}
        relation = ""
        for word in self.words:
            if word in RELATIONS:
                relation = word
            elif word in USER or (_bare(word) not in FUNCTION and word not in GRAMMAR):
                found.setdefault("\0user" if word in USER else _canonical(word), relation)
                relation = ""
        return found

    @cached_property
    def acting(self) -> frozenset[str]:
        """Who is named as doing something."""
        return frozenset(
            _canonical(_bare(match.group(1).casefold()))
            for match in _ACTING.finditer(self.text)
            if match.group(2) in NAMING and _bare(match.group(1).casefold()) not in FUNCTION
        )

    @cached_property
    def roles(self) -> frozenset[str]:
        """Whom it tells of, if not of the user."""
        return frozenset(map(_canonical, self.words)) & _ROLES

    def has(self, some: frozenset[str]) -> frozenset[str]:
        """Those of the words that stand in it."""
        return some & self.every


def _contrary(old: _Text, new: _Text) -> str:
    """What sets the texts apart whatever else they say; empty: nothing does."""
    checks: tuple[tuple[str, bool], ...] = (
        ("limit", bool(old.has(LIMITING)) != bool(new.has(LIMITING))),
        ("certainty", bool(old.has(UNCERTAIN)) != bool(new.has(UNCERTAIN))),
        ("negation", _negated(old) != _negated(new)),
        ("number", _exclusive(old.numbers, new.numbers)),
        ("name", _exclusive(old.identifiers, new.identifiers) or _renamed(old, new)),
        ("who", old.roles != new.roles),
        ("opposite", any(_exclusive(_members(old, groups), _members(new, groups)) for groups in _APART)),
        ("time", _over(old) != _over(new) or _tense(old, new)),
    )
    return next((because for because, differs in checks if differs), "")


def _apart(old: _Text, new: _Text, only_old: frozenset[str], only_new: frozenset[str]) -> str:
    """What sets texts apart of which each has words of its own; empty: these are other words for the same."""
    if old.numbers != new.numbers:
        return "number"
    if set(old.named[0]) - new.every or set(new.named[0]) - old.every or old.identifiers != new.identifiers:
        return "name"
    shared = old.content & new.content
    if not shared or len(only_new) - len(only_old) >= MORE_WORDS:
        return "besides"
    if _turned(old, new):
        return "order"
    return "word" if _replaced(old.sequence, new.sequence) else ""


def _rearranged(old: _Text, new: _Text, only_old: frozenset[str], only_new: frozenset[str]) -> str:
    """What sets texts apart of which one holds all words of the other; empty: it says what the other says."""
    if (only_new or new.numbers - old.numbers) and (only_old or old.numbers - new.numbers):
        return "number"
    if (only_new or only_old) and not _within(old, new):
        return "order"
    return "order" if _turned(old, new) else ""


def _exclusive(old: Any, new: Any) -> bool:
    """Whether each of two sets has something that the other lacks."""
    return bool(old - new) and bool(new - old)


def _renamed(old: _Text, new: _Text) -> bool:
    """Whether each names what the other does not, or a sentence of one begins with whom the other does not know."""
    (mine, first), (theirs, first_of_theirs) = old.named, new.named
    missing, others = set(mine) - new.every, set(theirs) - old.every
    if missing and others:
        return True
    if (first & missing) or (first_of_theirs & others):
        return True
    # "Alice taught Bob" and "Bob taught Alice".
    both = [name for name in mine if name in theirs], [name for name in theirs if name in mine]
    return len(set(both[0])) > 1 and list(dict.fromkeys(both[0])) != list(dict.fromkeys(both[1])) and not _listed(old)


def _listed(text: _Text) -> bool:
    """Whether names stand in a list, whose order says nothing."""
    return bool(re.search(r"\b[A-Z]\w+(, [A-Z]\w+)*,? (and|or|&) [A-Z]\w+", text.text))


def _over(text: _Text) -> bool:
    """Whether it says of something that it is over."""
    return bool(text.has(FORMER)) or _USED_TO.search(text.text) is not None


def _negated(text: _Text) -> bool:
    return any(word in NEGATIONS or word.endswith("n't") for word in text.words)


def _tense(old: _Text, new: _Text) -> bool:
    """Whether one tells of what was and the other of what is."""
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


def _turned(old: _Text, new: _Text) -> bool:
    """Whether what stands on the two sides of a word has changed places, or words stand in another relation."""
    before, after = old.relations, new.relations
    if any({before[word], after[word]} in CONTRARY for word in before.keys() & after.keys()):
        return True
    for word in ORDERING:
        if word in old.words and word in new.words and _crossed(_sides(old, word), _sides(new, word)):
            return True
    mine, theirs = old.arguments, new.arguments
    moves = (_crossed(_around(mine, word), _around(theirs, word)) for word in set(mine) & set(theirs))
    # "The site is hosted on Netlify" and "Netlify hosts the site" are the same.
    return any(
        any(before.get(each) in AGENT for each in moved) == any(after.get(each) in AGENT for each in moved)
        for moved in moves
        if moved
    )


def _crossed(old: tuple[set[str], set[str]], new: tuple[set[str], set[str]]) -> set[str]:
    """What stands on the left in one and on the right in the other, if there is something both ways."""
    (left, right), (left_of_new, right_of_new) = old, new
    there, back = (left - right) & (right_of_new - left_of_new), (right - left) & (left_of_new - right_of_new)
    return there | back if there and back else set()


def _around(words: list[str], word: str) -> tuple[set[str], set[str]]:
    at = words.index(word)
    return set(words[:at]), set(words[at + 1 :])


def _within(old: _Text, new: _Text) -> bool:
    """Whether the longer text can say what the shorter one says, whose words it holds: they come in the same order, and
    nobody else acts. "Alice likes tea" is not within "Bob likes tea and Alice likes coffee"."""
    short, long = sorted((old, new), key=lambda text: len(text.sequence))
    rest = iter(long.sequence)
    return all(word in rest for word in short.sequence) and long.acting == short.acting


def _sides(text: _Text, word: str) -> tuple[set[str], set[str]]:
    at = text.words.index(word)
    sides = text.words[:at], text.words[at + 1 :]
    left, right = ({_canonical(one) for one in side if _bare(one) not in FUNCTION} for side in sides)
    return left, right


def _members(text: _Text, groups: tuple[frozenset[str], ...]) -> set[int]:
    """Of which of the sets, whose words exclude each other, something stands in the text."""
    return {number for number, group in enumerate(groups) if text.every & group}


def _replaced(old: list[str], new: list[str]) -> bool:
    """Whether they are one sentence in which some words, side by side, were replaced by others."""
    before = next((place for place, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), 0)
    rest, other_rest = old[before:], new[before:]
    pairs = enumerate(zip(reversed(rest), reversed(other_rest), strict=False))
    after = next((place for place, (one, other) in pairs if one != other), 0)
    return not set(rest[: len(rest) - after]) & set(other_rest[: len(other_rest) - after])


def _in_digits(word: re.Match[str]) -> str:
    return NUMBERS.get(word.group().casefold(), word.group())


def _number(currency: str, digits: str, joined: str, apart: str) -> str:
    unit = joined.casefold() or (apart.casefold() if apart.casefold() in UNITS or apart.casefold() in _SCALES else "")
    if _THOUSANDS.fullmatch(digits):
        digits = digits.replace(",", "")
    if unit in _SCALES and digits.replace(".", "", 1).isdigit():
        digits, unit = f"{float(digits) * _SCALES[unit]:.10g}", ""
    elif digits.isdigit():
        digits = f"{float(digits):.10g}" if len(digits) < 10 else digits
    return f"{digits.strip('-/.,:')} {UNITS.get(currency, UNITS.get(unit, unit))}".strip()


def _plain(text: str) -> str:
    """Words and signs between digits alone: texts that differ in case, points and blanks say the same."""
    folded = unicodedata.normalize("NFKC", text).casefold().replace("’", "'")
    return " ".join(re.findall(r"[^\W_]+(?:['.,:/_@+#$€£%-]+[^\W_]+)*[+#%]*|[$€£<>=+#%/-]", folded))


def _bare(word: str) -> str:
    return word.removesuffix("'s").removesuffix("'")


def _canonical(word: str) -> str:
    """A word without its ending, in one of those that mean the same."""
    word = _bare(word)
    if (known := SYNONYMS.get(word)) is not None:
        return known
    stem = _stem(word)
    return SYNONYMS.get(stem, stem)


def _stem(word: str) -> str:
    """A word without the endings of English grammar, as far as two forms of one word come out alike."""
    for suffix in _SUFFIXES:
        if word.endswith(suffix) and len(word) - len(suffix) >= 3 and not word.endswith("ss"):
            word = word.removesuffix(suffix) + ("y" if suffix in ("ies", "ied") else "")
            break
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word.removesuffix("e") if len(word) > 3 else word


_ROLES = frozenset(map(_canonical, ROLES))
_APART = tuple(tuple(group | frozenset(map(_canonical, group)) for group in groups) for groups in APART)

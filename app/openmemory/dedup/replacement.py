"""Decides if a memory replaces an earlier one that is near to it. Pure functions, in time that grows with the texts.

Nearness alone is not enough: "Version 2.4 supports ..." and "Version 3.0 supports ..." are nearer than "I use VS Code"
and "I switched to Neovim". So the words count too: a linear model over features of both texts. The weights are fitted
by `python -m benchmarks.replaced --fit`, which also measures them on pairs that they were not fitted to.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import Any, NamedTuple

from openmemory.dedup.change_words import (
    ADDING,
    AMOUNTS,
    ASKING,
    CHANGED,
    COPULAS,
    COUNTED,
    DETERMINERS,
    DO,
    ENDED,
    FORMER,
    HAPPENED,
    HOLDS_ONCE,
    MANY,
    NOW,
    PEOPLE,
    PLANNED,
    POSSESSIVE,
    SINCE,
    TIMES,
    USER,
    WAS,
)
from openmemory.dedup.english_words import APART
from openmemory.dedup.negations import NEGATIONS
from openmemory.dedup.replacement_weights import BIAS, REPLACES_FROM, UNSURE_FROM, USUAL_NEARNESS, WEIGHTS

LONGEST = 400
"""The maximum length of texts that are judged, in characters. A longer text says too many things to replace one."""

LEAST_WORDS = 3
"""The minimum number of different words of a statement, without numbers. "Note 3" and "note 4" say nothing."""

ZONE = 2
"""The number of words, without articles, that name what a sentence is about, if it has no form of "to be"."""

LEAST_FRAME = 3
"""The number of words at the ends of two texts that make them one sentence with another value, if they are equal."""

MOST_REPLACED = 4
"""The maximum number of words that are one value."""

_ME = "\0me"
"""The user as what a sentence is about."""


class Verdict(StrEnum):
    """The meaning of a newer text for an older one that is near to it."""

    REPLACES = "replaces"
    """The older one no longer holds."""
    UNSURE = "unsure"
    """It may no longer hold."""
    UNRELATED = "unrelated"
    """Both may hold."""


class Judgement(NamedTuple):
    """A verdict, the probability that the older text no longer holds, and the features that speak for it, strongest
    first."""

    verdict: Verdict
    probability: float
    because: tuple[str, ...]


def judge(older: str, newer: str, nearness: float | None = None) -> Judgement:
    """Judges if `newer` replaces `older`. `nearness`: that of their vectors (`embeddings.chance`); None: it is not
    known."""
    values = features(older, newer, nearness)
    if not values:
        return Judgement(Verdict.UNRELATED, 0.0, ())
    parts = {name: WEIGHTS[name] * value for name, value in values.items()}
    probability = 1 / (1 + math.exp(-max(-30.0, min(30.0, BIAS + sum(parts.values())))))
    strongest = sorted((name for name, part in parts.items() if part > 0), key=lambda name: -parts[name])
    return Judgement(verdict_of(probability), probability, tuple(strongest))


def _words_of(text: str) -> int:
    """The number of different words of a text that are not numbers. What no spaces separate is one: neither the lists
    of words nor the packaged model know languages that are written so."""
    return min(sum(not _NUMBER.search(word) for word in _read(text).set), len(text.split()))


def verdict_of(probability: float) -> Verdict:
    """The verdict for a probability."""
    if probability >= REPLACES_FROM:
        return Verdict.REPLACES
    return Verdict.UNSURE if probability >= UNSURE_FROM else Verdict.UNRELATED


def asks_of_before(question: str) -> bool:
    """Returns True if a question is about what was: "where did I use to live?", "wo habe ich früher gewohnt?"."""
    return bool(_matching_phrases(_read(question), FORMER) or _WAS.search(question))


def features(older: str, newer: str, nearness: float | None) -> dict[str, float]:
    """The features of a pair; most are between -1 and 1. Empty if the texts cannot replace each other: one is too long
    or too short, or no word says that something has a state, as in two lists of words."""
    if max(len(older), len(newer)) > LONGEST or min(_words_of(older), _words_of(newer)) < LEAST_WORDS:
        return {}
    old, new = _read(older), _read(newer)
    first, last = _common(old.words, new.words)
    longest = max(len(old.words), len(new.words), 1)
    # A word of change that both have says nothing about what is between them.
    changed, now, ended = (
        bool(_matching_phrases(new, some) - _matching_phrases(old, some)) for some in (CHANGED, NOW, ENDED)
    )
    turn = changed or now
    others = old.people != new.people
    numbered = old.numbers != new.numbers
    same = old.start == new.start
    is_named = same or new.start in old.set or old.start in new.set
    own = not is_named and old.own and new.own and not others
    about = (is_named or own) and not others and not numbered
    shared = old.content & new.content
    once = bool(_groups(old, _ONCE) & _groups(new, _ONCE))
    linked = once or bool(shared)
    near = USUAL_NEARNESS if nearness is None else nearness
    opposite = old.negated != new.negated and bool(old.stems) and old.stems <= new.stems
    more = bool(old.content) and old.content <= new.content and not turn and not opposite
    contrary = _contrary(_groups(old, _SIDES), _groups(new, _SIDES))
    spans = [text.words[first : len(text.words) - last] for text in (old, new)]
    replaced = all(0 < len(span) <= MOST_REPLACED for span in spans) and first + last > 1
    amount = replaced and all(any(word in AMOUNTS or _NUMBER.search(word) for word in span) for span in spans)
    many = bool(old.set & MANY and new.set & MANY) and not (turn or opposite or amount)
    value = replaced and first >= last and about and not many
    subject = bool(old.subject - {_ME}) and old.subject == new.subject and about
    framed = first + last >= LEAST_FRAME
    if not (turn or ended or once or subject or own or framed or value or old.negated != new.negated):
        return {}
    return {
        "near": near,
        "nearer": max(0.0, near - 1.0),
        "changed": float(changed and about and linked),
        "now": float(now and about and linked),
        "changed_apart": float(changed and about and not linked),
        "now_apart": float(now and about and not linked),
        "near_apart": near * (not linked),
        "apart": float(not linked),
        "ended": float(ended and about),
        "once": float(once and about),
        "once_changed": float(once and turn and about),
        "framed": (first + last) / longest * about,
        "value": float(value),
        "once_value": float(value and once),
        "subject": float(subject),
        "overlap": len(shared) / max(min(len(old.content), len(new.content)), 1) * about,
        "negated": float(old.negated != new.negated and about),
        "contrary": float(contrary and about),
        "own": float(own),
        "elsewhere": float(not about),
        "other_person": float(others),
        "other_number": float(numbered),
        "changed_elsewhere": float(turn and not about),
        "many": float(many),
        "more": float(more),
        "adding": float(bool(_matching_phrases(new, ADDING)) and not turn),
        "asks": float(old.asks or new.asks),
        "planned": float(bool(_matching_phrases(new, PLANNED)) and not _matching_phrases(old, PLANNED)),
        "former": float(bool(_matching_phrases(new, FORMER)) and not _matching_phrases(old, FORMER)),
        "happened": float(bool(new.set & HAPPENED) and not turn),
        "happened_before": float(bool(old.set & HAPPENED)),
        "longer": min(len(new.words) / max(len(old.words), 1), 4.0) / 4,
    }


_WORD = re.compile(r"[^\W_]+(?:['’.\-:_][^\W_]+)*")
_NUMBER = re.compile(r"\d")
_WAS = re.compile(
    r"\b(?:use to|my (?:old|last|ex)|previous|prior|vorige[nrs]?|alte[nrs]?|anterior|précédente?)\b", re.IGNORECASE
)


class _Text(NamedTuple):
    """A text as it is compared. `spoken`: its words before those for the user were replaced. `start`: the first word
    that says what it is about. `subject`: the words before a form of "to be". `people` and `numbers`: those in the part
    that says what it is about. `own`: it is about the user, or something of theirs. `stems`: its words except articles
    and negations, without an "s" at their end."""

    words: tuple[str, ...]
    spoken: tuple[str, ...]
    set: frozenset[str]
    content: frozenset[str]
    start: str
    own: bool
    subject: frozenset[str]
    people: frozenset[str]
    numbers: tuple[str, ...]
    negated: bool
    asks: bool
    stems: frozenset[str]


@lru_cache(maxsize=512)
def _read(text: str) -> _Text:
    text = unicodedata.normalize("NFC", text).replace("’", "'")
    original = _pieces(text)
    spoken = tuple(word.casefold() for word in original)
    words = tuple(_ME if word in USER else word for word in spoken)
    about = [at for at, word in enumerate(words) if word not in DETERMINERS]
    verb = next((at for at, word in enumerate(words) if word in COPULAS), None)
    # The words before "to be" name the subject of a sentence. Without a form of "to be", its first words do.
    before = [at for at in about if verb is not None and at < verb]
    zone = before if before and len(before) <= MOST_REPLACED else about[:ZONE]
    start = next((words[at] for at in about), "")
    people = frozenset(words[at] for at in zone if words[at] in PEOPLE)
    counted = [at for at in range(1, verb or len(words)) if words[at - 1] in COUNTED and _NUMBER.search(words[at])]
    return _Text(
        words=words,
        spoken=spoken,
        set=frozenset(words) | _VERBS_OF_USER.intersection(spoken),
        content=frozenset(words[at] for at in about if words[at] not in COPULAS and words[at] != _ME),
        start=start,
        own=not people and any(word == _ME or word in POSSESSIVE for word in words[:4]),
        subject=frozenset(words[at] for at in before) if verb is not None and words[verb] not in WAS else frozenset(),
        people=people,
        numbers=tuple(
            words[at]
            for at in sorted({*zone, *counted})
            if _tells_which(original[at], words[at]) and not (at and words[at - 1] in SINCE)
        ),
        negated=any(map(_negates, words)),
        asks="?" in text or bool(words and words[0] in ASKING),
        stems=frozenset(words[at].removesuffix("s") for at in about if not _negates(words[at]) and words[at] not in DO),
    )


def _negates(word: str) -> bool:
    return word in NEGATIONS or word.endswith("n't")


def _pieces(text: str) -> list[str]:
    """The words of a text as they are written. French and Italian articles are words of their own."""
    pieces = []
    for match in _WORD.findall(text):
        before, _, after = match.partition("'")
        pieces += [before + "'", after] if after and len(before) < 3 and before.lower() in _ELIDED else [match]
    return ["my" if word.casefold() == "user's" else word.removesuffix("'s") for word in pieces]


_ELIDED = frozenset({"l", "d", "j", "c", "n", "s", "m", "t", "qu", "un"})


def _tells_which(original: str, word: str) -> bool:
    """Returns True for a word that tells which one of several a sentence is about: a number, a letter, a day."""
    return bool(_NUMBER.search(word)) or word in TIMES or (len(original) == 1 and original.isupper() and word != _ME)


def _matching_phrases(text: _Text, phrases: Mapping[str, Sequence[tuple[str, ...]]]) -> set[tuple[str, ...]]:
    """The phrases that are in a text. Between the first two words of a phrase there may be another one."""
    return {
        phrase
        for word in text.set & phrases.keys()
        for phrase in phrases[word]
        if len(phrase) == 1 or _near(text, phrase)
    }


def _near(text: _Text, phrase: Sequence[str]) -> bool:
    if any(word not in text.spoken for word in phrase):
        return False
    return 0 < text.spoken.index(phrase[1]) - text.spoken.index(phrase[0]) <= 2


def _groups(text: _Text, groups: Mapping[str, frozenset[Any]]) -> set[Any]:
    """The groups of the words of a text."""
    return {group for word in text.set & groups.keys() for group in groups[word]}


def _by_word(groups: Iterable[tuple[Any, Iterable[str]]]) -> dict[str, frozenset[Any]]:
    """Maps each word to the groups that hold it."""
    groups_by_word: defaultdict[str, set[Any]] = defaultdict(set)
    for name, words in groups:
        for word in words:
            groups_by_word[word].add(name)
    return {word: frozenset(names) for word, names in groups_by_word.items()}


_ONCE = _by_word(enumerate(HOLDS_ONCE))
_VERBS_OF_USER = USER & _ONCE.keys()
"""Verbs whose form names the user. They stand for the user, and also for what they tell."""
_SIDES = _by_word(((line, side), words) for line, sides in enumerate(APART) for side, words in enumerate(sides))


def _common(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """The number of words with which both begin, and with which the rest of both ends."""
    least = min(len(old), len(new))
    first = next((at for at in range(least) if old[at] != new[at]), least)
    rest = least - first
    last = next((at for at in range(rest) if old[-1 - at] != new[-1 - at]), rest)
    return first, last


def _contrary(old: set[tuple[int, int]], new: set[tuple[int, int]]) -> bool:
    """Returns True if the texts have words of different sides, which exclude each other. Each side is numbered within
    its line."""
    mine, theirs = old - new, new - old
    return not {line for line, _ in mine}.isdisjoint(line for line, _ in theirs)

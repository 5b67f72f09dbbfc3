"""Detects prompt injection: texts with instructions to the assistant that will read them. Pure functions.

A heuristic based on published attack patterns, which prefers false negatives. A flagged text is only ranked lower in
searches and passed on as data. Anyone who knows the patterns can avoid them.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

from openmemory.content_policy.injection_patterns.english import ENGLISH
from openmemory.content_policy.injection_patterns.forgeries import ANSWERED, FORGED, FORGED_NEEDLES, MARKERS
from openmemory.content_policy.injection_patterns.languages import TONGUES
from openmemory.content_policy.injection_patterns.phrases import Phrase, PhraseRole
from openmemory.content_policy.injection_patterns.roles import ROLES

LABEL = "injection"
"""The label of a memory with such a text."""

_FLAG = re.compile("\U0001f3f4[\U000e0020-\U000e007e]{2,6}\U000e007f")
_INVISIBLE = re.compile("[\u200b-\u200f\u202d\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff\U000e0000-\U000e01ef]")
_HIDDEN = re.compile(
    "[\U000e0000-\U000e007f]"  # tag characters, which can spell invisible text
    "|[\u202d\u202e]"  # text direction overrides
    "|[\u200b\u200c\u200e\u200f\u2060-\u2064\ufeff]{3}"  # runs of invisible characters
    "|[\ufe00-\ufe0f\U000e0100-\U000e01ef]{3}"
)
_ALIKE = dict(zip(map(ord, "асеіјорѕухԁһνοαιАСЕІЈОРЅУХΝΟΑΙ"), "aceijopsyxdhvoaiACEIJOPSYXNOAI", strict=True))
_ALIKES = re.compile("[" + "".join(map(chr, _ALIKE)) + "]")
_SIGNS = (("’", "'"), ("‘", "'"), ("“", '"'), ("”", '"'), ("—", " - "), ("–", " - "), ("\u2028", "\n"))
_DIGITS = str.maketrans("013457@$", "oieastas")
_DISGUISED = re.compile(r"[a-z][013457@$][a-z]|\b[1@$][a-z]{2}|[a-z]{2}[0347$]\b")
_LABELLED = re.compile(r"\s*[\w .-]{1,30}:")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_CLAUSE = 120
"""The number of characters before a phrase that are checked for its role in the sentence."""
_BREAK = re.compile(r"[.!?:;=\"(\[{<>|*#`\n]")
_OTHERS = _words(
    "i we he she it they who that which this these those the a an some many most all people users models model llms "
    "agents attackers attacks my our his her its their when if because since sometimes often usually why how did "
    "someone somebody nobody everyone one ich wir er sie es man der die das ein eine je j'ai on il elle ils nous le "
    "la les un une yo el ella nosotros los las"
)
"""First words of statements about someone."""
_YOU = _words("you your you're du dir tu vous")
_READER = _YOU | _words("assistant ai llm chatbot")
_NEVER = _words(
    "not never no don't dont doesn't didn't won't cannot can't shouldn't mustn't isn't nicht nie niemals kein keine "
    "ne pas jamais nunca"
)
_URGES = _words(
    "please now just simply kindly hereby immediately instead secretly quietly silently must you bitte "
    "jetzt nun sofort du sie maintenant "
    "desormais ahora favor plait"
)
_JOINS = _words("and then but so also first next or und dann et puis y luego")
_MODALS = _words("should shall will can may could to need have musst sollst")
_ASKED = _words("if when why how did whether unless wenn falls si")


def instructs(text: str) -> bool:
    """Returns True if a text seems to contain instructions to the assistant that will read it."""
    if not text.isascii():
        if _INVISIBLE.search(text) and _HIDDEN.search(_FLAG.sub("", text)):
            return True
        text = _plain(text)
    lowered = text.lower()
    flat = _flat(lowered)
    return (
        _forges(lowered) or _has_instructions(flat) or (_disguised(flat) and _has_instructions(flat.translate(_DIGITS)))
    )


def anywhere(value: Any) -> bool:
    """Returns True if any string in a JSON value, including keys, contains instructions to an assistant."""
    return any(instructs(text) for text in _strings(value))


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, item in value.items():
            yield name
            yield from _strings(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _strings(item)


def _plain(text: str) -> str:
    """Converts a text to ASCII: drops accents and invisible characters, and replaces letters that look Latin."""
    if _ALIKES.search(text):
        text = text.translate(_ALIKE)
    for sign, plain in _SIGNS:
        text = text.replace(sign, plain)
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()


def _flat(lowered: str) -> str:
    """Collapses whitespace, so that words are one blank or one line break apart."""
    if "\n" not in lowered:
        return " ".join(lowered.split())
    return "\n".join(filter(None, (" ".join(line.split()) for line in lowered.splitlines())))


def _disguised(flat: str) -> bool:
    """Returns True if digits replace letters."""
    return any(digit in flat for digit in "013457@$") and _DISGUISED.search(flat) is not None


def _forges(lowered: str) -> bool:
    """Returns True if a text imitates conversation turns or tool calls."""
    if ("<" in lowered or "[" in lowered or "\n\n" in lowered) and any(marker in lowered for marker in MARKERS):
        return True
    if any(needle in lowered for needle in FORGED_NEEDLES) and FORGED.search(lowered):
        return True
    # A text that begins with a name and a colon is a transcript of a conversation.
    return "\n" in lowered and not _LABELLED.match(lowered) and ANSWERED.search(lowered) is not None


_PHRASES = (*ENGLISH, *TONGUES, *ROLES)
_WORDS: dict[str, list[int]] = {}
for _place, _phrase in enumerate(_PHRASES):
    for _word in _phrase.words:
        _WORDS.setdefault(_word, []).append(_place)
_KNOWN = frozenset(_WORDS)
_APART = {code: " " for code in range(128) if not chr(code).isalpha()}


def _has_instructions(flat: str) -> bool:
    spoken = _KNOWN.intersection(flat.translate(_APART).split())
    if not spoken:
        return False
    line = flat.replace("\n", " ")
    for place in sorted({place for word in spoken for place in _WORDS[word]}):
        phrase = _PHRASES[place]
        if all(any(needle in line for needle in group) for group in phrase.needles) and any(
            _stands(flat, start, phrase.role) for start in _starts(flat, phrase)
        ):
            return True
    return False


def _starts(flat: str, phrase: Phrase) -> Iterator[int]:
    """Finds each step once and keeps the matches that begin within `phrase.within` of the one before. Linear time."""
    first, *rest = phrase.steps
    found = [match.span() for match in first.finditer(flat)]
    for step in rest:
        if not found:
            break
        spans = [match.span() for match in step.finditer(flat)]
        begins = [start for start, _ in spans]
        following = []
        for start, end in found:
            place = bisect_left(begins, end)
            if place < len(spans) and spans[place][0] <= end + phrase.within:
                following.append((start, spans[place][1]))
        found = following
    return (start for start, _ in found)


def _stands(flat: str, start: int, role: PhraseRole) -> bool:
    """Returns True if the words at `start` are used as an instruction in their sentence."""
    if role is PhraseRole.ANYHOW:
        return True
    clause = _BREAK.split(flat[max(0, start - _CLAUSE) : start])[-1].split()
    if not clause:
        return True
    aside = clause[-1].endswith(",")
    to_reader = clause[0] not in _OTHERS or not _READER.isdisjoint(clause) or (aside and clause[0] in _ASKED)
    if role is PhraseRole.ADDRESSED:
        return to_reader and _NEVER.isdisjoint(clause)
    last = clause[-1].strip("',-–—")
    if not last or aside or last in _JOINS:
        return to_reader
    if last in _URGES:
        return to_reader and not (last == "you" and clause[0] in _ASKED)
    return last in _MODALS and not _YOU.isdisjoint(clause)

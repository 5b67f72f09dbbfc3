"""Finds what texts state, and where two of them contradict each other. Pure functions.

A statement gives a subject a value: a leaf of a state, a value under a key, a fact `port=5433`, or a sentence such as
"The database port is 5433." Two texts also contradict each other if they are the same sentence with another number, the
opposite word, or a negation. In doubt they do not: a contradiction that is none misleads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from openmemory.dedup.english_words import FORMER, NAMING, NUMBERS, UNCERTAIN, words
from openmemory.dedup.key_values import parsed as key_values
from openmemory.dedup.negations import is_negation
from openmemory.dedup.paraphrases import ComparedText, opposites
from openmemory.dedup.spelling import spelling

MAX_LENGTH = 400
"""The length of the longest text that is compared as a sentence."""

_LINES = 20
"""The first lines of a text that may be statements."""

_SUBJECT_WORDS, _VALUE_WORDS = 8, 8
"""The most words of the subject, and of the value, of a sentence that is a statement."""

_SHORT_WORDS = 3
"""The most words of a value that is neither a number nor a name and is compared with that of a key."""

_ALIKE = 0.6
"""The share of all words that both texts have if one of them is the denial of the other."""

_SENTENCE = re.compile(r"(?<![DM]r)(?<!Mrs)(?<!Ms)(?<!St)(?<!Prof)[.!?](?=\s|$)|[\n;。！？]")
_KEY_PART = re.compile(r"[\s._/:-]+|(?<=[a-z])(?=[A-Z])")
_CLAUSE = re.compile(r"[,(]| - | because | since | weil | porque | parce que ")
_IS = words("is are becomes became changed equals = ist sind est sont es son é è sono är er jest")
"""Words between a subject and its value."""
_LEADING = words(
    "now currently set to at on in by the a an again only jetzt nun auf maintenant ahora der die das el la le"
)
_OTHERS = words("my his her their your its mein meine ihr ihre sein seine mon ma mes mi su")
"""Possessives that belong to a subject: her name is not mine."""
_ENGLISH = words("my his her their your its the our this")
_DETERMINED = _OTHERS | _ENGLISH | words("der die das unser unsere el la los las le les nuestro notre il lo")
_SPEAKERS = words("user assistant system human ai bot note todo update fyi ps")
_HAPPENED = words(
    """
    was were had did ran spent went bought sold met saw ate took gave got made drove flew paid wrote read came left won
    lost found told said felt slept woke drank swam spoke began heard held kept brought caught taught fell today
    yesterday tonight
    """
)
"""Words of texts about what happened once. Two such texts may differ."""
_BE = words("is are am be been 's being gets")
_VERBS = NAMING | _IS | words("be have need must should after every within for than per")
"""Words after which a number is a value."""
_PRONOUNS = words("i we you they he she it")
_ARTICLE_NOUN_VERB = 2
"""The place of the verb in most sentences that begin with an article, in languages whose verbs no list has."""
_NUMBER = re.compile(r"\d++(?:[.,:/\-]\d++)*+")


class StatedValue(NamedTuple):
    """A subject and its value. `name`: how the subject is shown. `last`: the words that a shorter name of it must have.

    `keyed`: the value stands under a key, and is all that counts.
    """

    name: str
    subject: frozenset[str]
    last: frozenset[str]
    value: str
    keyed: bool = True

    def is_about(self, other: StatedValue) -> bool:
        """Returns True if two statements are about the same: one may leave out the beginning of a key."""
        short, long = sorted((self, other), key=lambda one: len(one.subject))
        return short.subject <= long.subject and long.last <= short.subject

    def contradicts(self, other: StatedValue) -> bool:
        """Returns True if two statements give the same subject different values."""
        return self.is_about(other) and _differ(self, other)


def under_key(path: Sequence[str], value: Any, text: str) -> StatedValue | None:
    """The statement of a value under a path of keys. `text`: the value as a text. None: the keys have no word."""
    parts = [_words(" ".join(_KEY_PART.split(part))) for part in path]
    subject = frozenset().union(*parts)
    if not subject or not parts[-1]:
        return None
    return StatedValue(".".join(path), subject, parts[-1], value if isinstance(value, str) else text)


def statements(text: str) -> Iterator[StatedValue]:
    """The statements of a text: facts `key=value` of the whole text or of a line of it, and sentences."""
    whole = key_values(text)
    for line in [text] if whole else text.split("\n")[:_LINES]:
        pairs = whole or key_values(line)
        if pairs is None:
            yield from filter(None, map(_sentence, _SENTENCE.split(line)[:_LINES]))
            continue
        for key, value in pairs.items():
            if (statement := under_key(key.split("."), value, value)) is not None:
                yield statement


def is_alike(one: ComparedText, other: ComparedText) -> bool:
    """Returns True if two texts may be the same sentence but for a little: what `same_but` is asked for."""
    first, second = one.content, other.content
    if 2 * min(len(first), len(second)) >= max(len(first), len(second)) and (
        3 * len(first & second) >= len(first) + len(second)
    ):
        return True
    return one.unseparated and other.unseparated


def same_but(old: ComparedText, new: ComparedText) -> str:
    """Returns why two texts that are otherwise the same sentence contradict each other: `number`, `negation` or
    `opposite`. Empty if they do not."""
    comparable = max(len(old.text), len(new.text)) <= MAX_LENGTH and "?" not in old.text + new.text
    if not comparable or bool(old.has(UNCERTAIN)) != bool(new.has(UNCERTAIN)):
        return ""
    if old.negations.differ(new.negations):
        return "negation" if _denies(old, new) or _denies(new, old) else ""
    if _is_event(old) or _is_event(new):
        return ""
    only_old, only_new = old.content - new.content, new.content - old.content
    because = ""
    if not only_old and not only_new and old.content:
        (mine, labels), (theirs, others) = _numbers(old.text), _numbers(new.text)
        because = "number" if mine - theirs and theirs - mine and labels == others else ""
    elif len(only_old) == len(only_new) == 1 and old.numbers == new.numbers and old.content & new.content:
        in_predicate = only_old <= _predicate(old) and only_new <= _predicate(new)
        because = "opposite" if in_predicate and opposites(old, new) else ""
    return because


def _sentence(sentence: str) -> StatedValue | None:
    """The statement that a sentence makes. None: it makes none."""
    parts = sentence.replace(":", " : ", 1).split(None, _SUBJECT_WORDS + _VALUE_WORDS + 1)
    plain = ["" if part.startswith("May") else part.casefold().strip("\"'*_`,") for part in parts]
    at = next((place for place, word in enumerate(plain) if word in _IS or word == ":"), 0)
    if not 0 < at <= _SUBJECT_WORDS or UNCERTAIN & set(plain) or _HAPPENED & set(plain) - _IS:
        return None
    start = at + 1
    while start < len(plain) and plain[start] in _LEADING:
        start += 1
    value = _CLAUSE.split(" ".join(parts[start:]), maxsplit=1)[0].strip(" \"'*_`")
    if not value or len(value.split()) > _VALUE_WORDS or any(map(is_negation, plain)):
        return None
    name = " ".join(parts[:at])
    subject = _words(name) | (set(plain[:at]) & _OTHERS)
    if plain[at] == ":":
        # What stands before a colon may be who speaks.
        short = len(value.split()) <= _SHORT_WORDS
        attribute = short and any(part.islower() for part in parts[:at]) and plain[0] not in _SPEAKERS
    else:
        attribute = plain[0] in _DETERMINED or len(subject) > 1
    if not subject or not attribute:
        return None
    return StatedValue(name.strip(' *_`"'), frozenset(subject), frozenset(subject), value, keyed=False)


def _words(text: str) -> frozenset[str]:
    """The content words and numbers of a name."""
    features = ComparedText(text)
    return features.content | features.numbers.keys()


def _differ(one: StatedValue, other: StatedValue) -> bool:
    """Returns True if two statements about the same give different values."""
    if (one.keyed and other.keyed) or spelling(one.value) == spelling(other.value):
        return spelling(one.value) != spelling(other.value)
    first, second = ComparedText(one.value), ComparedText(other.value)
    names, others = (set(_NAME.findall(value)) for value in (one.value, other.value))
    if first.numbers or second.numbers:
        return bool(first.numbers - second.numbers and second.numbers - first.numbers)
    if names or others:
        return bool(names - others and others - names)
    if opposites(first, second):
        return True
    short = (one.keyed or other.keyed) and max(len(first.words), len(second.words)) <= _SHORT_WORDS
    return short and bool(first.content and second.content) and not first.content & second.content


_NAME = re.compile(r"[^\W\d_a-z]\w+")


def _denies(one: ComparedText, other: ComparedText) -> bool:
    """Returns True if a text denies what another one says, and both say nearly the same otherwise."""
    mine, theirs = one.negations, other.negations
    if one.unseparated:
        pairs, others = ({text[at : at + 2] for at in range(len(text) - 1)} for text in (one.text, other.text))
        return mine.clauses != theirs.clauses and 2 * len(pairs & others) >= min(len(pairs), len(others))
    first, second = ({word for word in text.content if not is_negation(word)} for text in (one, other))
    if len(first & second) < _ALIKE * len(first | second):
        return False
    content = other.content - frozenset().union(*theirs.denied)
    return any(denied - FORMER <= content for denied in mine.denied)


def _numbers(text: str) -> tuple[set[str], set[str]]:
    """The numbers of a text that are values, and those that name something, such as those of a room or a version."""
    values, labels = set[str](), set[str]()
    for sentence in _SENTENCE.split(text):
        parts = [part.strip("\"'*_`,()") for part in sentence.casefold().split()]
        start = _verb(parts)
        for place, part in enumerate(NUMBERS.get(part, part) for part in parts):
            if numbers := _NUMBER.findall(part):
                value = place > start or part[-1:].isalpha() or part[:1] in "$€£%"
                (values if value else labels).update(numbers)
    return values, labels


def _verb(parts: Sequence[str]) -> int:
    """The place of what looks like the verb of a sentence. Its length: nothing does."""
    if not parts:
        return 0
    if parts[0] in _PRONOUNS:
        return 1
    for place, part in enumerate(parts):
        inflected = place > 0 and part.isalpha() and part.endswith("s") and not part.endswith("ss")
        if part in _VERBS or inflected or part.endswith((":", "=")):
            return place
        if place == _ARTICLE_NOUN_VERB and parts[0] in _DETERMINED - _ENGLISH:
            return place
    return len(parts)


def _predicate(text: ComparedText) -> frozenset[str]:
    """The content words of a text that come after the verb of their sentence."""
    content = frozenset[str]()
    for sentence in _SENTENCE.split(text.text):
        parts = sentence.casefold().split()
        content |= ComparedText(" ".join(parts[_verb(parts) + 1 :])).content
    return content


def _is_event(text: ComparedText) -> bool:
    """Returns True if a text is about what happened once."""
    before = ""
    for word in text.words:
        past = word in _HAPPENED or (word.endswith("ed") and len(word) > 4 and word != "need")
        if past and before not in _BE:
            return True
        before = word
    return False

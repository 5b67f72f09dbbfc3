"""Texts that make a regular expression work as hard as it can, derived from the expression, and how its time grows."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from math import log2
from typing import Any, NamedTuple

LIMIT = 3.0
"""The growth of time that counts as linear for a text of twice the length. Quadratic time grows by 4."""

_SMALL = (8, 12, 16, 20, 32, 64, 128, 512)
"""The numbers of repetitions that are tried. They rise slowly, so that an exponential expression is seen in time."""

_RISING = 128
_MOST = 4_096
"""The last number of repetitions of one character. A longer unit is repeated less often."""

_SUSPECT = 0.002
"""The seconds from which growth is measured. Quadratic time takes longer for the last number of repetitions."""

_FLOOR = 0.005
"""The seconds that a text must take for its growth to say something."""

_LONGEST = 250_000
"""The characters from which a text that is still fast is linear. Quadratic time would take seconds for it.

In longer texts a repetition's stack of places to return to grows out of the processor's cache, which also costs time.
"""

_ROUNDS = 3
_PARSER: Any = re._parser  # type: ignore[attr-defined]
_REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
_PLAIN = [" ", "\n", "a", "A", "0", '"', "-", ".", "=", "é", "x", "_", "/", ":", "\t", "[", "'", "!"]
_OF_CATEGORY = {"DIGIT": "0", "SPACE": " ", "WORD": "a", "NOT_DIGIT": "a", "NOT_SPACE": "a", "NOT_WORD": "-"}
_ENDS = ("", "\0", "\n!")
_LETTERS = 20
_STARTS = 8
_MEASURED = 6


class Pump(NamedTuple):
    """A text of any length: a beginning, a unit that is repeated, and an end."""

    start: str
    unit: str
    end: str

    def text(self, times: int) -> str:
        """The text with the unit repeated so often."""
        return self.start + self.unit * times + self.end


class Growth(NamedTuple):
    """How many times longer a text of twice the length takes, the seconds of the shorter one, and the text."""

    factor: float
    seconds: float
    pump: Pump


def pumps(pattern: re.Pattern[Any]) -> list[Pump]:
    """The texts for an expression: its starts, its middles and its characters, repeated, with a mismatch at the end."""
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    tree = _PARSER.parse(source, pattern.flags & ~re.UNICODE if isinstance(pattern.pattern, bytes) else pattern.flags)
    starts, units = {"": None}, dict[str, None]()
    for before, body in _repeats(tree, ""):
        starts[before] = None
        for choice in range(3):
            inner = _spelled(body, choice)
            units |= {inner: None, before + inner: None, before: None}
    for choice in range(4):
        whole = _spelled(tree, choice)
        units |= {whole: None, whole[:-1]: None}
        starts[whole] = None
    letters = dict.fromkeys([*_letters(tree), *_PLAIN])
    many = [*dict.fromkeys([*units, *list(letters)[:_LETTERS]])]
    found = [Pump(start, unit, end) for start in [*starts][:_STARTS] for unit in many for end in _ENDS if unit]
    return [*dict.fromkeys(found)]


def worst(run: Callable[[str], object], tried: list[Pump]) -> Growth:
    """The text whose time grows the most. The growth is 0 if none takes long enough to be measured."""
    slow: list[tuple[int, float, Pump]] = []
    longest = Growth(0.0, 0.0, Pump("", "", ""))
    for pump in tried:
        for times in (*_SMALL, int(_MOST / len(pump.unit) ** 0.5)):
            took = _seconds(run, pump.text(times))
            if took >= _SUSPECT:
                slow.append((times, -took / len(pump.text(times)), pump))
                break
            longest = max(longest, Growth(0.0, took, pump))
        if sum(times <= _SMALL[-1] for times, _, _ in slow) >= _MEASURED:
            break
    # First those that are slow with the fewest repetitions, then those that take longest for each character.
    growths = list[Growth]()
    for times, _, pump in sorted(slow)[:_MEASURED]:
        growths.append(_growth(run, pump, times))
        if growths[-1].factor > LIMIT:
            break
    return max(growths, default=longest)


def _growth(run: Callable[[str], object], pump: Pump, times: int) -> Growth:
    """The larger growth of the doublings of a text that takes long enough, in the calmest of some rounds."""
    calm = float("inf")
    while times > _SMALL[0] and _seconds(run, pump.text(times)) > _FLOOR * 4:
        times = times // 2 if times > _RISING else times * 4 // 5
    for _ in range(_ROUNDS):
        while (seconds := min(_seconds(run, pump.text(times)) for _ in range(2))) < _FLOOR:
            if len(pump.unit) * times > _LONGEST:
                return Growth(0.0, seconds, pump)
            times += max(1, times // 4) if times < _RISING else times
        # An exponential expression would not return from twice the length: its growth is told by a quarter more.
        more = (2.0, 4.0) if times > _RISING else (1.25,)
        took = [seconds, *(min(_seconds(run, pump.text(int(times * each))) for _ in range(2)) for each in more)]
        steps = pairwise(zip((1.0, *more), took, strict=True))
        calm = min(calm, max((after / before) ** (1 / log2(size / least)) for (least, before), (size, after) in steps))
        if calm <= LIMIT:
            break
    return Growth(calm, seconds, pump)


def _seconds(run: Callable[[str], object], text: str) -> float:
    before = time.thread_time()
    run(text)
    return time.thread_time() - before


def _repeats(tree: Any, before: str) -> Iterator[tuple[str, Any]]:
    """The repeated parts of an expression, each with a text of what is before it."""
    for op, argument in tree:
        name = str(op)
        if name in _REPEATS:
            if argument[1] > 1:
                yield before, argument[2]
            yield from _repeats(argument[2], before)
        else:
            for part in _parts(name, argument):
                yield from _repeats(part, before)
        before += _spelled([(op, argument)], 0)


def _parts(name: str, argument: Any) -> list[Any]:
    if name == "SUBPATTERN":
        return [argument[3]]
    if name == "BRANCH":
        return list(argument[1])
    if name in ("ASSERT", "ASSERT_NOT"):
        return [argument[1]]
    if name == "ATOMIC_GROUP":
        return [argument]
    if name == "GROUPREF_EXISTS":
        return [part for part in argument[1:] if part]
    return []


def _spelled(tree: Any, choice: int) -> str:
    """A text that the expression matches, as far as it can be told without trying. `choice` picks the alternatives."""
    text = ""
    for op, argument in tree:
        name = str(op)
        if name == "LITERAL":
            text += chr(argument)
        elif name in ("IN", "NOT_LITERAL", "ANY", "CATEGORY"):
            letters = _letters([(op, argument)])
            text += letters[choice % len(letters)] if letters else ""
        elif name in _REPEATS:
            text += _spelled(argument[2], choice) * max(argument[0], min(1, argument[1]))
        elif name == "BRANCH":
            text += _spelled(argument[1][choice % len(argument[1])], choice)
        elif name not in ("ASSERT", "ASSERT_NOT"):
            text += "".join(_spelled(part, choice) for part in _parts(name, argument))
    return text


def _letters(tree: Any) -> list[str]:
    """Characters that single steps of an expression match."""
    found: dict[str, None] = {}
    for op, argument in tree:
        name = str(op)
        if name == "LITERAL":
            found[chr(argument)] = None
        elif name == "NOT_LITERAL":
            found |= dict.fromkeys(each for each in _PLAIN if ord(each) != argument)
        elif name == "ANY":
            found |= {"a": None, " ": None}
        elif name == "IN":
            found |= dict.fromkeys(_members(argument))
        elif name in _REPEATS:
            found |= dict.fromkeys(_letters(argument[2]))
        else:
            for part in _parts(name, argument):
                found |= dict.fromkeys(_letters(part))
    return [*found]


def _members(items: Any) -> list[str]:
    """Characters of a class."""
    if str(items[0][0]) == "NEGATE":
        return [each for each in _PLAIN if not any(_is_in(each, item) for item in items[1:])]
    return [letter for item in items for letter in _of_item(item)]


def _of_item(item: Any) -> list[str]:
    name, argument = str(item[0]), item[1]
    if name == "LITERAL":
        return [chr(argument)]
    if name == "RANGE":
        return [chr(argument[0]), chr(argument[1])]
    return [_OF_CATEGORY[str(argument).removeprefix("CATEGORY_")]]


def _is_in(letter: str, item: Any) -> bool:
    name, argument = str(item[0]), item[1]
    if name == "LITERAL":
        return ord(letter) == argument
    if name == "RANGE":
        return bool(argument[0] <= ord(letter) <= argument[1])
    kind = str(argument).removeprefix("CATEGORY_")
    expression = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[kind.removeprefix("NOT_")]
    return (re.match(expression, letter) is not None) != kind.startswith("NOT_")

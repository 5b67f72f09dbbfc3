"""Finds the times that a question names: "in May 2023", "last night", "since March", "between 3 and 7 June 2023".

Parts of a day, weekends and "the last 24 hours" are read here. For all other times, `dateparser` finds the words and
the moment that they mean. The words themselves define how long the time is, and whether it is open at one end. English
only, offline, and `dateparser` is loaded with the first question that needs it. Days, weeks and years are those of the
clock on the user's wall.

Times that only an event defines ("before the move") are not supported. The memory nearest to "the move" was written
when somebody mentioned it, perhaps months before as a plan or years after as a recollection, so its time is no bound.
Since half of all memories lie before any bound, a wrong one would move them all.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any, NamedTuple

from openmemory.serialization.zones import placed

YEARS = 10
"""The number of years that a month without a year may refer to."""

MAX_TIME_WORDS = 16
"""The maximum number of time words ("May", "2023", "yesterday") that are read, from the first on. The parser takes
milliseconds for each."""

AROUND = 40
"""The number of characters around such a word that may belong to the same time. The parser reads nothing else."""

HALF_LIFE = timedelta(days=4)
"""Events are often recorded soon afterwards: this long after a period, a memory counts half as much as within it."""

_WHATEVER = """
a about after all am an and any anything are as at be been before between by did do does done during event events ever
every everything find for from give going had happen happened happening happens has have i in information is it know
list me memories memory my new news note noted notes of on once our out over recall record recorded remember remembered
remind said saved say show since some something stored tell that the then there thing things this to until till up us
was we went were what when which while who with within write wrote written you
"""
_SAYS_NOTHING = frozenset(_WHATEVER.split())
"""Words without a subject. A question of these and a time contains only the time."""
_NUMBER = re.compile(r"\d+[a-z]{0,2}")

_MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]
_MONTH = (
    r"(?:jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|oct(?:ober)?|"
    r"nov(?:ember)?|dec(?:ember)?)"
)
_RELATIVE = r"(?:yesterday|today|tomorrow|ago|(?:last|this|next|past)\s+(?:week|month|year|\w+day))"
_NAMES_A_TIME = re.compile(rf"\b(?:(?:19|20)\d\d|{_MONTH}|{_RELATIVE})\b", re.IGNORECASE)
_YEAR = re.compile(r"\b(?:19|20)\d\d\b")
_DAY = re.compile(r"\b(?:[12]?\d|3[01])(?:st|nd|rd|th)?\b", re.IGNORECASE)
_ISO = re.compile(r"\b((?:19|20)\d\d)[-/](\d\d?)[-/](\d\d?)(?:\b|T)")
_WITH_MONTH = re.compile(rf"\b({_MONTH})\b", re.IGNORECASE)
_DATE = re.compile(
    rf"(?:(?P<day>\d{{1,2}})(?:st|nd|rd|th)? (?P<month>{_MONTH})|(?P<early_month>{_MONTH}) (?P<late_day>\d{{1,2}})"
    r"(?:st|nd|rd|th)?)(?: (?P<year>(?:19|20)\d\d))?",
    re.IGNORECASE,
)
_ORDINALS = {1: "st", 2: "nd", 3: "rd", 21: "st", 22: "nd", 23: "rd", 31: "st"}
_OPEN = re.compile(r"\b(since|after|before|until|till)\s+(?:the\s+)?$", re.IGNORECASE)
_PREPOSITION = re.compile(r"^(?:since|after|before|until|till|in|on|at|by|from|to|of|during)\s+", re.IGNORECASE)
_BETWEEN = re.compile(r"\b(?:between|from)\b", re.IGNORECASE)
_AMBIGUOUS = {"may", "march", "mar", "jan", "jun", "dec", "sep", "august"}
"""Words and names that mean more than a month. They count only after a word like "in"."""
_BEFORE_MONTH = re.compile(r"\b(?:in|of|since|last|next|this|until|before|after|during|early|late|mid|by)\s+$", re.I)


_HOURS = {"morning": (4, 12), "afternoon": (12, 18), "evening": (17, 24), "night": (18, 30)}
"""The hours of the parts of a day. A night ends on the morning after."""
_DIGITS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBERS = {word: number for number, word in enumerate(_DIGITS, 1)} | {"couple of": 2, "few": 3}
_COUNTS = "|".join(word.replace(" ", r"\s+") for word in _NUMBERS)
_OWN_TIME = re.compile(
    rf"\b(?:(?P<day>this|last|yesterday|today|tomorrow)\s+(?P<part>{'|'.join(_HOURS)})|(?P<tonight>tonight)"
    r"|(?P<which>this\s+past|past|last|this|next)\s+weekend"
    rf"|(?:last|past)\s+(?P<number>\d{{1,4}}|{_COUNTS})\s+(?P<unit>minute|hour|day|week|month|year)s?"
    r"|(?:last|past)\s+(?P<one>hour|minute))\b",
    re.IGNORECASE,
)
"""Times that are read here."""


@dataclass(frozen=True, slots=True)
class Period:
    """A time from `start` up to but not including `end`. None: open at that end."""

    start: datetime | None
    end: datetime | None

    def closeness(self, moment: datetime) -> float:
        """1 within the period, half as much for each `HALF_LIFE` after it, and 0 before it."""
        if self.start is not None and moment < self.start:
            return 0.0
        if self.end is None or moment < self.end:
            return 1.0
        return float(0.5 ** ((moment - self.end) / HALF_LIFE))


def names_a_time(question: str) -> bool:
    """Returns True if a question seems to name a time. Only then is it parsed, in a thread."""
    return _NAMES_A_TIME.search(question) is not None or _OWN_TIME.search(question) is not None


def spellings(question: str) -> list[str]:
    """The usual spellings of the month, day or year that a question consists of, its own first: a text may contain "May
    8th" where the question says "8 May". Empty if it names none of these."""
    if not _YEAR.search(question) and not _WITH_MONTH.search(question):
        return []
    phrase = " ".join(word for word in re.findall(r"[\w/-]+", question) if word.lower() not in _SAYS_NOTHING)
    date = _DATE.fullmatch(phrase)
    if date is None:
        return [phrase]
    day, month = date["day"] or date["late_day"], date["month"] or date["early_month"]
    year = f" {date['year']}" if date["year"] else ""
    iso = [f"{date['year']}-{_MONTHS.index(month[:3].lower()) + 1:02}-{int(day):02}"] if year else []
    nth = f"{day}{_ORDINALS.get(int(day), 'th')}"
    some = phrase, *(f"{one}{year}" for one in (f"{day} {month}", f"{month} {day}", f"{nth} {month}", f"{month} {nth}"))
    return [*dict.fromkeys((*some, f"{nth} of {month}{year}", *iso))]


class NamedTimes(NamedTuple):
    """The times that a question names, in order.

    `alone`: the question contains nothing else. `cut`: it names further times, which were not read.
    """

    times: list[Period]
    alone: bool
    cut: bool = False


def read(question: str, now: datetime) -> NamedTimes:
    """The times that the first `MAX_TIME_WORDS` time words in a question name. Empty if there are none.

    A month without a year means that month in each of the last `YEARS` years up to `now`. The time zone is that of
    `now`; the periods are in UTC.
    """
    if not names_a_time(question):
        return NamedTimes([], False)
    # The parser returns words with single spaces between them.
    question = " ".join(question.split())
    own = list(islice(_OWN_TIME.finditer(question), MAX_TIME_WORDS + 1))
    times = [_Time(time.start(), time[0], _own(question[: time.start()], time, now)) for time in own[:MAX_TIME_WORDS]]
    # The parser must not read their words again.
    others = _OWN_TIME.sub(lambda time: "x" * len(time[0]), question)
    word_spans = [match.span() for match in islice(_NAMES_A_TIME.finditer(others), MAX_TIME_WORDS + 1)]
    cut = len(word_spans) > MAX_TIME_WORDS or len(own) > MAX_TIME_WORDS
    end = word_spans[MAX_TIME_WORDS][0] if len(word_spans) > MAX_TIME_WORDS else len(others)
    wall = now.replace(tzinfo=UTC)
    for at, words, moment in _spans(others, wall, _windows(others, word_spans[:MAX_TIME_WORDS], end)):
        wall_periods = _periods_of(others[:at], words, moment, wall)
        times.append(_Time(at, words, [_on_wall(period, now) for period in wall_periods]))
    times.sort(key=lambda time: time.at)
    periods = [period for time in times for period in time.periods]
    rest = question
    for time in reversed(times):
        # `_spans` may have appended a year from elsewhere to the words.
        own_words = time.words if question.startswith(time.words, time.at) else time.words[: -len(" 2026")]
        rest = rest[: time.at] + " " + rest[time.at + len(own_words) :] if time.periods else rest
    other_words = re.findall(r"\w+", rest.lower())
    alone = bool(periods) and all(word in _SAYS_NOTHING or _NUMBER.fullmatch(word) for word in other_words)
    if len(times) == 2 and len(periods) == 2 and _between(question, times[0].at + len(times[0].words)):
        periods = [Period(periods[0].start, periods[1].end)]
    return NamedTimes(periods, alone and not cut, cut)


class _Time(NamedTuple):
    """Words that name a time, where they begin, and the periods that they mean."""

    at: int
    words: str
    periods: list[Period]


def _on_wall(period: Period, now: datetime) -> Period:
    """A period whose ends are times on the wall, in UTC. The time zone is that of `now`."""
    zone = now.tzinfo or UTC
    start, end = (at and placed(at.replace(tzinfo=None), zone) for at in (period.start, period.end))
    return Period(start, end)


def _own(before: str, time: re.Match[str], now: datetime) -> list[Period]:
    """The periods of a time of `_OWN_TIME`."""
    today = _midnight(now).replace(tzinfo=UTC)
    if time["which"]:
        periods = _weekends(" ".join(time["which"].lower().split()), today)
    elif (unit := (time["unit"] or time["one"] or "").lower()) in ("hour", "minute"):
        moment = now.astimezone(UTC) - timedelta(**{f"{unit}s": _count(time["number"])})
        return [Period(moment, None)]
    elif unit:
        return [_on_wall(Period(_earlier(today, _count(time["number"]), unit), None), now)]
    else:
        day, part = (time["day"] or "this").lower(), (time["part"] or "night").lower()
        shift = {"yesterday": -1, "last": -1, "tomorrow": 1}.get(day, 0)
        # In the small hours, tonight began yesterday.
        shift -= shift == 0 and part == "night" and now.hour < _HOURS["night"][1] - 24
        first, last = (today + timedelta(days=shift, hours=hour) for hour in _HOURS[part])
        periods = [Period(first, last)]
    return [_on_wall(_open_ended(before, period), now) for period in periods]


def _count(number: str | None) -> int:
    number = " ".join((number or "one").lower().split())
    return int(number) if number.isdecimal() else _NUMBERS[number]


def _weekends(which: str, today: datetime) -> list[Period]:
    """The weekends that are meant. From Monday to Friday, "this weekend" may be the last or the coming one."""
    coming = today + timedelta(days=5 - today.weekday())
    weeks = {"last": (-1,), "past": (-1,), "this past": (-1,), "next": (1,)}.get(which) or (
        (0,) if today.weekday() > 4 else (-1, 0)
    )
    return [Period(coming + timedelta(weeks=week), coming + timedelta(days=2, weeks=week)) for week in weeks]


def _earlier(day: datetime, number: int, unit: str) -> datetime:
    """The day that lies a number of days, weeks, months or years before another, at the earliest in the year 1."""
    if unit in ("day", "week"):
        return day - timedelta(days=number * (7 if unit == "week" else 1))
    months = max(day.year * 12 + day.month - 1 - number * (12 if unit == "year" else 1), 12)
    first = day.replace(year=months // 12, month=months % 12 + 1, day=1)
    return first.replace(day=min(day.day, _days(first)))


def _windows(question: str, word_spans: Sequence[tuple[int, int]], end: int) -> list[slice]:
    """The parts of a question up to `end` that the parser reads: whole words within `AROUND` characters of the named
    ones."""
    windows: list[slice] = []
    for first, last in word_spans:
        start, stop = max(first - AROUND, 0), min(last + AROUND, end)
        if start:
            start = max(question.find(" ", start, first), start)
        if stop < end:
            stop = max(question.rfind(" ", last, stop), last)
        if windows and start <= windows[-1].stop:
            start = windows.pop().start
        windows.append(slice(start, stop))
    return windows


def _spans(question: str, now: datetime, windows: Sequence[slice]) -> list[tuple[int, str, datetime]]:
    """The words in these parts of a question that name a time: their positions, the words, and the moments that they
    mean."""
    naive = now.replace(tzinfo=None)
    settings = {"RELATIVE_BASE": naive, "PREFER_DATES_FROM": "past", "RETURN_AS_TIMEZONE_AWARE": False}
    spans = []
    for window in windows:
        at = window.start
        for words, moment in _parser()(question[window], languages=["en"], settings=settings) or ():
            place = question.find(words, at, window.stop)
            if place < 0:  # the parser replaced characters: no time is better than a failed search
                continue
            at = place
            if _NAMES_A_TIME.search(words):
                first = len(preposition[0]) if (preposition := _PREPOSITION.search(words)) else 0
                spans.append((at + first, words[first:], moment.replace(tzinfo=UTC)))
            at += len(words)
    # "between 3 May and 7 June 2023": a year alone after a date applies to that date and those before it.
    while len(spans) > 1 and _YEAR.fullmatch(spans[-1][1].strip(" ,")) and _WITH_MONTH.search(spans[-2][1]):
        year = spans.pop()[2].year
        spans = [(at, f"{words} {year}", moment.replace(day=1, year=year)) for at, words, moment in spans]
    # "from May to July 2023": both are in that year.
    if len(spans) == 2 and _between(question, spans[0][0] + len(spans[0][1])):
        (at, words, moment), (_, later, _) = spans
        year_of = _YEAR.search(later)
        if year_of and _WITH_MONTH.search(words) and not _YEAR.search(words):
            spans[0] = at, f"{words} {year_of[0]}", moment.replace(day=1, year=int(year_of[0]))
    return spans


def _between(question: str, end: int) -> bool:
    """Returns True if the first time, which ends there, is the beginning of a range."""
    return _BETWEEN.search(question[:end]) is not None


def _periods_of(before: str, words: str, moment: datetime, now: datetime) -> list[Period]:
    month, year = _WITH_MONTH.search(words), _YEAR.search(words)
    day = _DAY.search(_YEAR.sub("", words))
    if month is None and year is None:
        return [_open_ended(before, _relative(words.lower(), moment))]
    if month is None:
        return [_open_ended(before, _day_of(moment) if _ISO.search(words) else _year_of(moment))]
    if year is not None:
        return [_open_ended(before, _in_year(moment.year, month[1], day))]
    alone = words.strip().lower() in _AMBIGUOUS
    if alone and not _BEFORE_MONTH.search(before):
        return []
    of_each = [_in_year(now.year - ago, month[1], day) for ago in range(YEARS)]
    past = [period for period in of_each if period.start is not None and period.start <= now]
    return [_open_ended(before, past[0])] if _OPEN.search(before) else past


def _in_year(year: int, month: str, day: re.Match[str] | None) -> Period:
    first = datetime(year, _MONTHS.index(month[:3].lower()) + 1, 1, tzinfo=UTC)
    number = int(re.sub(r"\D", "", day[0])) if day else 0
    return _day_of(first.replace(day=min(number, _days(first)))) if number else _month_of(first)


def _relative(words: str, moment: datetime) -> Period:
    if "week" in words:
        monday = _midnight(moment) - timedelta(days=moment.weekday())
        return Period(monday, monday + timedelta(days=7))
    if "month" in words:
        return _month_of(moment)
    return _year_of(moment) if "year" in words else _day_of(moment)


def _day_of(moment: datetime) -> Period:
    start = _midnight(moment)
    return Period(start, start + timedelta(days=1))


def _month_of(moment: datetime) -> Period:
    start = _midnight(moment).replace(day=1)
    return Period(start, start + timedelta(days=_days(start)))


def _year_of(moment: datetime) -> Period:
    start = _midnight(moment).replace(month=1, day=1)
    return Period(start, start.replace(year=start.year + 1))


def _midnight(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)


def _days(moment: datetime) -> int:
    """The number of days in the moment's month."""
    return calendar.monthrange(moment.year, moment.month)[1]


def _open_ended(before: str, period: Period) -> Period:
    match = _OPEN.search(before)
    if match is None:
        return period
    preposition = match[1].lower()
    if preposition == "since":
        return Period(period.start, None)
    return Period(period.end, None) if preposition == "after" else Period(None, period.start)


@cache
def _parser() -> Any:
    from dateparser.search import search_dates

    return search_dates

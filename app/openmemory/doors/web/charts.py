"""The geometry of charts, which templates draw as inline SVG. Each has its figures as a text too."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import NamedTuple

DAYS = 30
"""The days of a sparkline, today included."""

_HEIGHT = 24
_STEP = 4


class Bar(NamedTuple):
    """One day of a sparkline."""

    x: int
    y: float
    height: float


@dataclass(frozen=True, slots=True)
class Sparkline:
    """One bar for each day. `label`: the figures in words."""

    label: str
    bars: Sequence[Bar]
    width: int = DAYS * _STEP
    height: int = _HEIGHT
    thickness: int = _STEP - 1


def sparkline(counts: Mapping[date, int], what: str, today: date) -> Sparkline:
    """Returns the bars of the last days up to `today`. `what` names what was counted: `written`."""
    days = [today - timedelta(days=back) for back in reversed(range(DAYS))]
    values = [counts.get(day, 0) for day in days]
    most = max(values)
    bars = []
    for place, value in enumerate(values):
        # What was not nothing shows, however small it is beside the largest.
        height = max(2.0, round(value / most * _HEIGHT, 1)) if value else 0.5
        bars.append(Bar(place * _STEP, round(_HEIGHT - height, 1), height))
    label = f"{sum(values):,} {what} in the last {DAYS} days"
    if most:
        day = days[values.index(most)]
        label += f", most on {day.day} {day:%B}: {most:,}"
    return Sparkline(label, bars)


class Cell(NamedTuple):
    """One day of a calendar. `level`: from 0 for nothing to 4 for the most."""

    x: int
    y: int
    level: int
    title: str


class MonthFigures(NamedTuple):
    """The counts of a month, as the text alternative of a calendar."""

    name: str
    written: int
    accessed: int


@dataclass(frozen=True, slots=True)
class Calendar:
    """One cell for each day of a year, a column for each week."""

    label: str
    cells: Sequence[Cell]
    months: Sequence[MonthFigures]
    width: int
    height: int = 7 * 13


def calendar(written: Mapping[date, int], accessed: Mapping[date, int], today: date) -> Calendar:
    """Returns the cells of the 53 weeks up to `today`, and the figures of each month, newest first."""
    first = today - timedelta(days=today.weekday() + 52 * 7)
    days = [first + timedelta(days=number) for number in range((today - first).days + 1)]
    most = max(written.get(day, 0) + accessed.get(day, 0) for day in days)
    cells = []
    months: dict[str, list[int]] = {}
    for place, day in enumerate(days):
        wrote, read = written.get(day, 0), accessed.get(day, 0)
        level = -(-4 * (wrote + read) // most) if most else 0
        title = f"{day.day} {day:%B %Y}: {wrote:,} written, {read:,} read"
        cells.append(Cell(place // 7 * 13, place % 7 * 13, level, title))
        figures = months.setdefault(f"{day:%B %Y}", [0, 0])
        figures[0] += wrote
        figures[1] += read
    total = [sum(figures[which] for figures in months.values()) for which in (0, 1)]
    label = f"{total[0]:,} memories written and {total[1]:,} read in the last year"
    rows = [MonthFigures(name, *figures) for name, figures in reversed(months.items())]
    return Calendar(label, cells, rows, (days[-1] - first).days // 7 * 13 + 11)

"""Renders templates. Every value is escaped; characters that a reader cannot see are shown by their code point."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping
from contextvars import ContextVar
from datetime import UTC, datetime, tzinfo
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from openmemory.search.query.text import is_unspaced, words
from openmemory.serialization.zones import in_zone

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e007f]"
)
"""Control, zero-width, bidirectional and tag characters. Tabs and line breaks are layout."""

_UNSEEN = Markup('<span class="unseen" title="{}">{}</span>')

_MOST_MARKED = 64
"""The words of a query that are marked. The time to mark a text grows with them."""

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def visible(text: str, marks: re.Pattern[str] | None = None) -> Markup:
    """Returns a text of a memory as markup: escaped, with what `marks` matches marked and unseen characters named."""
    if marks is None:
        return _mark_invisible(text)
    parts = marks.split(text)
    # The pattern has one group, so every second part is a match.
    return Markup("").join(
        Markup("<mark>{}</mark>").format(_mark_invisible(part)) if place % 2 else _mark_invisible(part)
        for place, part in enumerate(parts)
    )


def _mark_invisible(text: str) -> Markup:
    if not _INVISIBLE.search(text):
        return escape(text)
    parts: list[Markup] = []
    start = 0
    for match in _INVISIBLE.finditer(text):
        code = f"U+{ord(match[0]):04X}"
        title = unicodedata.name(match[0], "control character").capitalize()
        parts += [escape(text[start : match.start()]), _UNSEEN.format(title, code)]
        start = match.end()
    return Markup("").join([*parts, escape(text[start:])])


def marks_of(query: str, *, whole: bool) -> re.Pattern[str] | None:
    """Returns a pattern with one group that matches the words of a query, without stop words, where they are words of a
    text too. `whole`: it matches the query as a whole instead, anywhere. None: there is nothing to mark."""
    if whole:
        return re.compile(f"({re.escape(query)})", re.IGNORECASE) if query else None
    # Longer ones first: the first alternative that matches is taken.
    marked = sorted(set(words(query)[:_MOST_MARKED]), key=len, reverse=True)
    parts = [re.escape(word) if is_unspaced(word) else rf"(?<![^\W_]){re.escape(word)}(?![^\W_])" for word in marked]
    return re.compile(f"({'|'.join(parts)})", re.IGNORECASE) if parts else None


_SHOWN_IN: ContextVar[tzinfo] = ContextVar("time zone of the page", default=UTC)


def moment(at: datetime | float | None) -> Markup:
    """Returns a time as a `<time>` element: how long ago if that is recent, else the date; the whole time as title. It
    is of the time zone of the page."""
    if at is None:
        return Markup("")
    if not isinstance(at, datetime):
        at = datetime.fromtimestamp(at, UTC)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    # Numbers and names of months need no escaping, which would take longer than all the rest.
    local = in_zone(at, _SHOWN_IN.get())
    whole = f"{local.isoformat(' ', 'seconds')[:19]} {local.tzname()}"
    return Markup(f'<time datetime="{at.isoformat()}" title="{whole}">{_format_age(local)}</time>')  # noqa: S704


def _format_age(at: datetime) -> str:
    seconds = (datetime.now(UTC) - at).total_seconds()
    if abs(seconds) < 60:
        return "just now" if seconds >= 0 else "in a moment"
    if abs(seconds) < 7 * 86_400:
        size, unit = next((size, unit) for size, unit in _UNITS if abs(seconds) >= size)
        number = int(seconds // size) if seconds > 0 else round(-seconds / size)
        words = f"{number} {unit}{'' if number == 1 else 's'}"
        return f"{words} ago" if seconds > 0 else f"in {words}"
    return f"{at.day} {at:%b %Y}"


def number(value: int) -> str:
    """Returns a number with commas between the thousands."""
    return f"{value:,}"


def format_count(value: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun: `1 memory`, `2,000 memories`."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def plus(parameters: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Returns parameters of an address with some more, or others."""
    return {**parameters, **more}


_environment = Environment(
    loader=PackageLoader("openmemory.doors.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {"visible": visible, "moment": moment, "number": number, "counted": format_count, "plus": plus}


def render_template(template: str, zone: tzinfo = UTC, /, **values: Any) -> str:
    """Returns a template filled with these values. Times are of the time zone `zone`."""
    token = _SHOWN_IN.set(zone)
    try:
        return _environment.get_template(template).render(**values)
    finally:
        _SHOWN_IN.reset(token)

"""Renders templates. Every value is escaped; characters that a reader cannot see are shown by their code point."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

_INVISIBLE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb]"
    r"|[\U000e0000-\U000e007f]"
)
"""Control, zero-width, bidirectional and tag characters. Tabs and line breaks are layout."""

_UNSEEN = Markup('<span class="unseen" title="{}">{}</span>')

_UNITS = ((86_400, "day"), (3_600, "hour"), (60, "minute"))


def visible(text: str, marks: Iterable[str] = ()) -> Markup:
    """Returns a text of a memory as markup: escaped, with the words in `marks` marked and unseen characters named."""
    pattern = _marked(tuple(sorted({word for word in marks if word}, key=len, reverse=True))) if marks else None
    if pattern is None:
        return _named(text)
    parts = pattern.split(text)
    # The pattern has one group, so every second part is a match.
    return Markup("").join(
        Markup("<mark>{}</mark>").format(_named(part)) if place % 2 else _named(part)
        for place, part in enumerate(parts)
    )


def _named(text: str) -> Markup:
    if not _INVISIBLE.search(text):
        return escape(text)
    parts: list[Markup] = []
    start = 0
    for found in _INVISIBLE.finditer(text):
        code = f"U+{ord(found[0]):04X}"
        title = unicodedata.name(found[0], "control character").capitalize()
        parts += [escape(text[start : found.start()]), _UNSEEN.format(title, code)]
        start = found.end()
    return Markup("").join([*parts, escape(text[start:])])


@lru_cache(maxsize=64)
def _marked(words: tuple[str, ...]) -> re.Pattern[str] | None:
    if not words:
        return None
    return re.compile(rf"(?<!\w)((?:{'|'.join(map(re.escape, words))})\w*)", re.IGNORECASE)


def moment(at: datetime | float | None) -> Markup:
    """Returns a time as a `<time>` element: how long ago if that is recent, else the date; the whole time as title."""
    if at is None:
        return Markup("")
    if not isinstance(at, datetime):
        at = datetime.fromtimestamp(at, UTC)
    at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
    # Numbers and names of months need no escaping, which would take longer than all the rest.
    whole = at.isoformat(" ", "seconds")[:19]
    return Markup(f'<time datetime="{at.isoformat()}" title="{whole} UTC">{_told(at)}</time>')  # noqa: S704


def _told(at: datetime) -> str:
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


def counted(value: int, one: str, many: str | None = None) -> str:
    """Returns a number with its noun: `1 memory`, `2,000 memories`."""
    return f"{value:,} {one if value == 1 else many or one + 's'}"


def plus(given: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """Returns parameters of an address with some more, or others."""
    return {**given, **more}


_environment = Environment(
    loader=PackageLoader("openmemory.web"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters |= {"visible": visible, "moment": moment, "number": number, "counted": counted, "plus": plus}


def rendered(template: str, **values: Any) -> str:
    """Returns a template filled with these values."""
    return _environment.get_template(template).render(**values)

"""Parses language model answers into operations. Tolerates code fences, extra text, almost-JSON, other names of the
list and malformed fields. Pure functions."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

from openmemory.capture import lenient_json
from openmemory.identity.names import category_name
from openmemory.llm.port import Reply
from openmemory.serialization.zones import UTC_ZONE, placed

MAX_OPERATIONS = 50
"""Maximum number of operations that are processed per answer."""

LABEL = 40
"""Maximum number of characters in an emotion's label."""

_OPS = {
    "ADD": "ADD", "CREATE": "ADD", "INSERT": "ADD", "UPDATE": "UPDATE", "MERGE": "UPDATE", "SUPERSEDE": "SUPERSEDE",
    "REPLACE": "SUPERSEDE", "DELETE": "DELETE", "REMOVE": "DELETE", "FORGET": "DELETE", "NONE": "NONE",
    "NOOP": "NONE", "SKIP": "NONE", "IGNORE": "NONE",
}  # fmt: skip
_LISTS = ("operations", "memory", "memories", "facts")
"""The names of a list of operations: ours, and those of mem0, which models use."""

_TEXTS = ("text", "memory", "fact", "content")
"""The names of an operation's text, in the same way."""

_LIST_STARTS = [re.compile(rf"\{{\s*+[\"']?{name}[\"']?\s*+:\s*+(?:[\"']\s*+)?\[") for name in _LISTS]
_IN_WORDS = re.compile(rf"({'|'.join(_OPS)})(?: *#?(\d{{1,6}}))? *[:\-\u2013\u2014] *(\S.*)", re.DOTALL)


class Malformed(Exception):
    """No operations can be read from an answer. The message gives the model the reason."""


@dataclass(frozen=True, slots=True)
class Edit:
    """One change that the model answers with. `number` refers to a memory, and `message` to a message. Both may be ones
    that were not shown."""

    op: str
    number: int | None = None
    text: str = ""
    categories: tuple[str, ...] = ()
    kind: str | None = None
    importance: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    reason: str | None = None
    message: int | None = None
    emotion: dict[str, Any] | None = None


def operations(reply: Reply, zone: ZoneInfo = UTC_ZONE) -> list[Edit]:
    """The operations of an answer, in order, at most one more than `MAX_OPERATIONS`. `zone`: that of its dates.

    Invalid entries of an otherwise valid answer get an empty `op`.

    Raises:
        Malformed: the answer contains no list of operations.
    """
    if reply.refused and not reply.text.strip():
        raise Malformed("you refused to answer")
    entries = _operation_list(reply.text)
    if entries is None:
        raise Malformed(_why(reply))
    return [_operation(each, zone) for each in entries[: MAX_OPERATIONS + 1]]


def _why(reply: Reply) -> str:
    if not reply.text.strip():
        return "it is empty"
    if reply.cut:
        return "it is cut off before its end; be shorter"
    return 'it holds no JSON object with a list "operations"'


def _operation_list(text: str) -> list[Any] | None:
    """The list of operations from the last object that has one, because models write their reasoning before it.

    Otherwise a bare list or a single operation, if no other brackets precede it. Operations inside an unterminated
    value are not used: the rest would be lost silently.
    """
    if (several := _several(text)) is not None:
        return several
    for pattern in _LIST_STARTS:
        if starts := [match.start() for match in pattern.finditer(text)]:
            return _operations_of(_decode(text, starts[-1]))
    first = re.search(r"[{\[]", text)
    value = None if first is None else _decode(text, first.start())
    if _is_operation(value):
        return [value]
    if value == []:
        # Empty brackets mean "no operations" only if they are the whole answer.
        return [] if re.fullmatch(r"\s*(```\w*\s*)?\[\s*\]\s*(```\s*)?", text) else None
    return _operations_of(value)


def _several(text: str) -> list[Any] | None:
    """The operations of a list of such objects, as a model answers that calls a function several times."""
    if not text.lstrip().startswith("["):
        return None
    lists = [each for each in _decode(text.lstrip()) or () if isinstance(each, dict) and not _is_operation(each)]
    entries = [listed for each in lists if (listed := _operations_of(each)) is not None]
    return [one for listed in entries for one in listed] if entries else None


def _decode(text: str, start: int = 0) -> Any:
    try:
        return lenient_json.decoded(text, start)
    except ValueError:
        return None


def _operations_of(value: Any) -> list[Any] | None:
    """The list of operations of an object, or a bare list of them. Only a list with a name may hold plain texts."""
    usable = _is_operation
    if isinstance(value, dict):
        value = next((value[name] for name in _LISTS if name in value), None)
        usable = _is_usable
    if isinstance(value, str):  # a list that was encoded twice, as in the arguments of a call
        value = _decode(value)
    if not isinstance(value, list):
        return None
    return value if not value or any(map(usable, value)) else None


def _is_operation(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("op", value.get("event")), str)


def _is_usable(value: Any) -> bool:
    return _is_operation(value) or bool(value.strip() if isinstance(value, str) else _text_of(value))


def _text_of(value: Any) -> str:
    return next((text for name in _TEXTS if (text := _text(value.get(name)))), "") if isinstance(value, dict) else ""


def _in_words(value: str) -> Edit:
    """An operation that is a plain text, such as "Alice likes figs." or "UPDATE 2: Alice likes figs and dates."."""
    text = _text(value)
    if match := _IN_WORDS.fullmatch(text):
        return Edit(_OPS[match[1]], _whole(match[2]), match[3])
    return Edit("" if text.upper() in _OPS or not text else "ADD", text=text)


def _operation(value: Any, zone: ZoneInfo) -> Edit:
    if isinstance(value, str):
        return _in_words(value)
    if isinstance(value, dict) and "op" not in value and "event" not in value and _text_of(value):
        value = value | {"op": "ADD"}
    if not _is_operation(value):
        return Edit("")
    categories = value.get("categories")
    names = [categories] if isinstance(categories, str) else categories if isinstance(categories, list) else []
    return Edit(
        op=_OPS.get(value.get("op", value.get("event")).strip().upper(), ""),
        number=_whole(value.get("id")),
        text=_text_of(value),
        categories=tuple(dict.fromkeys(name for each in names[:5] if (name := category_name(_text(each))))),
        kind=_text(value.get("kind")).lower() or None,
        importance=_whole(value.get("importance")),
        since=_moment(value.get("from"), zone),
        until=_moment(value.get("until"), zone),
        reason=_text(value.get("reason"))[:200] or None,
        message=_whole(value.get("message")),
        emotion=_emotion(value.get("emotion")),
    )


def _emotion(value: Any) -> dict[str, Any] | None:
    """Valence (-1 to 1), arousal (0 to 1) and the label, if any; None if a number is missing."""
    if not isinstance(value, dict):
        return None
    valence, arousal = _number(value.get("valence"), -1.0), _number(value.get("arousal"), 0.0)
    if valence is None or arousal is None:
        return None
    label = " ".join(_text(value.get("label")).lower().split())[:LABEL]
    return {"valence": valence, "arousal": arousal} | ({"label": label} if label else {})


def _number(value: Any, least: float) -> float | None:
    """A number clamped to the range from `least` to 1. Also accepts a number written as a string."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return round(min(1.0, max(least, number)), 3) + 0.0 if math.isfinite(number) else None


def _text(value: Any) -> str:
    """A text that can be stored: U+FFFD replaces NUL and halves of surrogate pairs; two halves become one character."""
    if not isinstance(value, str):
        return ""
    if "\0" in value or not value.isascii():
        whole: str = value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
        return whole.replace("\0", "\ufffd").strip()
    return value.strip()


def _whole(value: Any) -> int | None:
    """A whole number. Also accepts a string or a float."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value) if isinstance(value, int | str) else round(value) if isinstance(value, float) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1_000_000 else None


def _moment(value: Any, zone: ZoneInfo) -> datetime | None:
    """A date or time, of the time zone if it has no offset; None if it cannot be parsed."""
    text = _text(value)
    if re.fullmatch(r"\d{4}", text):
        text += "-01-01"
    elif re.fullmatch(r"\d{4}-\d{2}", text):
        text += "-01"
    try:
        return placed(datetime.fromisoformat(text), zone)
    except ValueError:
        return None

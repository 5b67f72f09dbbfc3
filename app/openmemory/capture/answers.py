"""Parses language model answers into operations. Tolerates code fences, extra text and malformed fields. Pure
functions."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from openmemory.identity.names import category_name
from openmemory.llm.port import Reply

MAX_OPERATIONS = 50
"""Maximum number of operations that are processed per answer."""

LABEL = 40
"""Maximum number of characters in an emotion's label."""

_OPS = {
    "ADD": "ADD", "CREATE": "ADD", "INSERT": "ADD", "UPDATE": "UPDATE", "MERGE": "UPDATE", "SUPERSEDE": "SUPERSEDE",
    "REPLACE": "SUPERSEDE", "DELETE": "DELETE", "REMOVE": "DELETE", "FORGET": "DELETE", "NONE": "NONE",
    "NOOP": "NONE", "SKIP": "NONE", "IGNORE": "NONE",
}  # fmt: skip
_DECODER = json.JSONDecoder()


class Malformed(Exception):
    """No operations can be read from an answer. The message tells the model why."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation from the answer. `number` refers to a memory, and may be one that was not shown."""

    op: str
    number: int | None = None
    text: str = ""
    categories: tuple[str, ...] = ()
    kind: str | None = None
    importance: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    reason: str | None = None
    emotion: dict[str, Any] | None = None


def operations(reply: Reply) -> list[Operation]:
    """The operations of an answer, in order, at most one more than `MAX_OPERATIONS`.

    Invalid entries of an otherwise valid answer get an empty `op`.

    Raises:
        Malformed: the answer contains no list of operations.
    """
    if reply.refused and not reply.text.strip():
        raise Malformed("you refused to answer")
    found = _found(reply.text)
    if found is None:
        raise Malformed(_why(reply))
    return [_operation(each) for each in found[: MAX_OPERATIONS + 1]]


def _why(reply: Reply) -> str:
    if not reply.text.strip():
        return "it is empty"
    if reply.cut:
        return "it is cut off before its end; be shorter"
    return 'it holds no JSON object with a list "operations"'


def _found(text: str) -> list[Any] | None:
    """The list of operations from the last object that has one, because models think aloud before it.

    Otherwise a bare list or a single operation, if no other brackets precede it. Operations inside an unterminated
    value are not used: the rest would be lost silently.
    """
    if ends := [match.start() for match in re.finditer(r'\{\s*"operations"\s*:', text)]:
        return _listed(_decoded(text, ends[-1]))
    first = re.search(r"[{\[]", text)
    value = None if first is None else _decoded(text, first.start())
    if _is_operation(value):
        return [value]
    if value == []:
        # Empty brackets mean "no operations" only if they are the whole answer.
        return [] if re.fullmatch(r"\s*(```\w*\s*)?\[\s*\]\s*(```\s*)?", text) else None
    return _listed(value)


def _decoded(text: str, start: int) -> Any:
    try:
        return _DECODER.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return None


def _listed(value: Any) -> list[Any] | None:
    if isinstance(value, dict):
        value = value.get("operations")
    if not isinstance(value, list):
        return None
    return value if not value or any(_is_operation(each) for each in value) else None


def _is_operation(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("op", value.get("event")), str)


def _operation(value: Any) -> Operation:
    if not _is_operation(value):
        return Operation("")
    categories = value.get("categories")
    names = [categories] if isinstance(categories, str) else categories if isinstance(categories, list) else []
    return Operation(
        op=_OPS.get(value.get("op", value.get("event")).strip().upper(), ""),
        number=_whole(value.get("id")),
        text=_text(value.get("text")),
        categories=tuple(dict.fromkeys(name for each in names[:5] if (name := category_name(_text(each))))),
        kind=_text(value.get("kind")).lower() or None,
        importance=_whole(value.get("importance")),
        since=_moment(value.get("from")),
        until=_moment(value.get("until")),
        reason=_text(value.get("reason"))[:200] or None,
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
    return value.strip() if isinstance(value, str) else ""


def _whole(value: Any) -> int | None:
    """A whole number. Also accepts a string or a float."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value) if isinstance(value, int | str) else round(value) if isinstance(value, float) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1_000_000 else None


def _moment(value: Any) -> datetime | None:
    """A date or time, in UTC if it has no offset; None if it cannot be parsed."""
    text = _text(value)
    if re.fullmatch(r"\d{4}", text):
        text += "-01-01"
    elif re.fullmatch(r"\d{4}-\d{2}", text):
        text += "-01"
    try:
        found = datetime.fromisoformat(text)
        return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)
    except (ValueError, OverflowError):
        return None

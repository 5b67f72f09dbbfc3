"""What a language model answered, as operations: fences, chatter and half-right fields are put up with. Pure."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from openmemory.llm.port import Reply

MOST = 50
"""Operations of one answer that are looked at."""

LABEL = 40
"""Characters of an emotion's label."""

_OPS = {
    "ADD": "ADD", "CREATE": "ADD", "INSERT": "ADD", "UPDATE": "UPDATE", "MERGE": "UPDATE", "SUPERSEDE": "SUPERSEDE",
    "REPLACE": "SUPERSEDE", "DELETE": "DELETE", "REMOVE": "DELETE", "FORGET": "DELETE", "NONE": "NONE",
    "NOOP": "NONE", "SKIP": "NONE", "IGNORE": "NONE",
}  # fmt: skip
_DECODER = json.JSONDecoder()


class Malformed(Exception):
    """No operations can be read from an answer; the message says why, for the model."""


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation as it was answered; `number` is that of a memory, and may be none that was shown."""

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
    """The operations of an answer, in order, one more than `MOST` at most. What is none of them is left out of an
    otherwise good answer: those have an empty `op`.

    Raises:
        Malformed: there is no list of operations in it.
    """
    if reply.refused and not reply.text.strip():
        raise Malformed("you refused to answer")
    found = _found(reply.text)
    if found is None:
        raise Malformed(_why(reply))
    return [_operation(each) for each in found[: MOST + 1]]


def _why(reply: Reply) -> str:
    if not reply.text.strip():
        return "it is empty"
    if reply.cut:
        return "it is cut off before its end; be shorter"
    return 'it holds no JSON object with a list "operations"'


def _found(text: str) -> list[Any] | None:
    """The list of operations: of the last object that has one, for models think aloud before; else a bare list, or one
    operation, that nothing in brackets goes before.

    What lies within something that has no end is not taken: the rest would be lost without a word.
    """
    if ends := [match.start() for match in re.finditer(r'\{\s*"operations"\s*:', text)]:
        return _listed(_decoded(text, ends[-1]))
    first = re.search(r"[{\[]", text)
    value = None if first is None else _decoded(text, first.start())
    if _is_operation(value):
        return [value]
    if value == []:
        # Brackets with nothing in them say so only where they are all that was answered.
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
        categories=tuple(dict.fromkeys(name for each in names[:5] if (name := _text(each).lower()))),
        kind=_text(value.get("kind")).lower() or None,
        importance=_whole(value.get("importance")),
        since=_moment(value.get("from")),
        until=_moment(value.get("until")),
        reason=_text(value.get("reason"))[:200] or None,
        emotion=_emotion(value.get("emotion")),
    )


def _emotion(value: Any) -> dict[str, Any] | None:
    """Valence (-1 to 1), arousal (0 to 1) and a label if there is one; None where a number is missing."""
    if not isinstance(value, dict):
        return None
    valence, arousal = _number(value.get("valence"), -1.0), _number(value.get("arousal"), 0.0)
    if valence is None or arousal is None:
        return None
    label = " ".join(_text(value.get("label")).lower().split())[:LABEL]
    return {"valence": valence, "arousal": arousal} | ({"label": label} if label else {})


def _number(value: Any, least: float) -> float | None:
    """A number between `least` and 1, also one that is written as a text; what lies beyond is the nearer end."""
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
    """A whole number, also one that is written as a text or with a point."""
    if isinstance(value, bool):
        return None
    try:
        number = int(value) if isinstance(value, int | str) else round(value) if isinstance(value, float) else None
    except (ValueError, OverflowError):
        return None
    return number if number is not None and abs(number) < 1_000_000 else None


def _moment(value: Any) -> datetime | None:
    """A date or a time; one without an offset is in UTC. What cannot be read counts as not said."""
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

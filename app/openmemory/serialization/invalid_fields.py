"""The errors that pydantic finds in a request, as sentences that name the fields."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

SHOWN_PROBLEMS = 5


def not_valid(errors: Sequence[Any]) -> str:
    """Formats pydantic's errors as `field: problem; field: problem`, each once. The input itself is not repeated."""
    problems = list(dict.fromkeys(map(_problem, errors)))
    shown = problems[:SHOWN_PROBLEMS]
    if len(problems) > len(shown):
        shown.append(f"and {len(problems) - len(shown)} more")
    return "; ".join(shown)


def _problem(error: Mapping[str, Any]) -> str:
    field, words = _field(error["loc"]), _words(error)
    # A check of the whole body names the field itself.
    return words if field == "body" and _NAMES_ITS_FIELD.match(words) else f"{field}: {words}"


def _field(location: Sequence[str | int]) -> str:
    """Formats a location such as `("body", "memories", 3, "text")` as `memories[3].text`."""
    whole = str(location[0]) if location else "body"
    path = ""
    # Parts in parentheses are our names for the alternatives of a union; no part of the input has such a name.
    for part in location[1:] if whole in ("body", "query", "path") else location:
        if isinstance(part, int):
            path += f"[{part}]" if path else f"{whole}[{part}]"
        elif not part.startswith("("):
            path += f".{part}" if path else part
    return path or "body"


_NAMES_ITS_FIELD = re.compile(r"[a-z_.]+: ")
_WORDS = {
    "missing": "is required",
    "extra_forbidden": "is not a known field",
    "unexpected_keyword_argument": "is not a known field",
    "dataclass_type": "must be a JSON object",
    "model_attributes_type": "must be a JSON object",
    "model_type": "must be a JSON object",
    "dict_type": "must be a JSON object",
}


def _words(error: Mapping[str, Any]) -> str:
    message: str = _WORDS.get(error["type"]) or error["msg"].removeprefix("Value error, ")
    return message[:1].lower() + message[1:]

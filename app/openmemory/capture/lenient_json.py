"""Reads almost-JSON, as language models write it: in one pass, never guessing at what is not there. Pure functions.

Tolerates line breaks and quotation marks inside strings, single quotes, Python's literals, keys without quotes, and
commas that are missing or too many. A value without its end is refused, because the rest of it would be lost silently.
"""

from __future__ import annotations

import json
import re
from typing import Any

DEPTH = 32
"""Maximum nesting of objects and lists."""

_STRICT = json.JSONDecoder(strict=False)
_BETWEEN = re.compile(r"[\s,]*")
_KEY = re.compile(r"[A-Za-z_][\w-]*")
_LITERAL = re.compile(r"(true|false|null|none|nan|-?inf(?:inity)?)\b", re.IGNORECASE)
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?")
_CHUNK = {quote: re.compile(rf"[^\\{quote}]*") for quote in "\"'"}
_ENDS = re.compile(r"\s*(?:[,:}\]]|\Z)")
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_LITERALS = {"true": True, "false": False}


def decoded(text: str, start: int = 0) -> Any:
    """The value that begins at `start`. What follows it is ignored.

    Raises:
        ValueError: no whole value begins there.
    """
    try:
        return _STRICT.raw_decode(text, start)[0]
    except (ValueError, RecursionError):
        return _AlmostJson(text).value(start, 0)[0]


class _AlmostJson:
    """Reads one text. Each method takes a position and returns the value with the position after it."""

    def __init__(self, text: str) -> None:
        self._text = text

    def value(self, at: int, depth: int) -> tuple[Any, int]:
        first = self._text[at : at + 1]
        if depth > DEPTH:
            raise ValueError("nested too deeply")
        if first == "{":
            return self._object(at + 1, depth + 1)
        if first == "[":
            return self._list(at + 1, depth + 1)
        if first in _CHUNK:
            return self._string(at)
        if match := _LITERAL.match(self._text, at):
            return _LITERALS.get(match[0].lower()), match.end()
        if match := _NUMBER.match(self._text, at):
            return _number(match[0]), match.end()
        raise ValueError(f"no value at {at}")

    def _list(self, at: int, depth: int) -> tuple[list[Any], int]:
        values: list[Any] = []
        while (at := self._next(at)) < len(self._text):
            if self._text[at] == "]":
                return values, at + 1
            value, at = self.value(at, depth)
            values.append(value)
        raise ValueError("a list without its end")

    def _object(self, at: int, depth: int) -> tuple[dict[str, Any], int]:
        values: dict[str, Any] = {}
        while (at := self._next(at)) < len(self._text):
            if self._text[at] == "}":
                return values, at + 1
            key, at = self._key(at)
            at = self._next(at)
            if self._text[at : at + 1] != ":":
                raise ValueError(f"a key without a value at {at}")
            values[key], at = self.value(self._next(at + 1), depth)
        raise ValueError("an object without its end")

    def _key(self, at: int) -> tuple[str, int]:
        if self._text[at] in _CHUNK:
            return self._string(at)
        if match := _KEY.match(self._text, at):
            return match[0], match.end()
        raise ValueError(f"no key at {at}")

    def _string(self, at: int) -> tuple[str, int]:
        """A string ends at a quotation mark of its kind that stands before a comma, colon or bracket."""
        quote, parts, at = self._text[at], list[str](), at + 1
        while at < len(self._text):
            chunk = _CHUNK[quote].match(self._text, at)
            assert chunk is not None
            parts.append(chunk[0])
            at = chunk.end()
            if escape := _ESCAPE.match(self._text, at):
                parts.append(chr(int(escape[1], 16)) if escape[1] else _ESCAPED.get(escape[2], escape[2]))
                at = escape.end()
            elif at < len(self._text):
                at += 1
                if _ENDS.match(self._text, at):
                    return "".join(parts), at
                parts.append(quote)
        raise ValueError("a string without its end")

    def _next(self, at: int) -> int:
        match = _BETWEEN.match(self._text, at)
        assert match is not None
        return match.end()


def _number(digits: str) -> int | float | None:
    try:
        return float(digits) if set(digits) & set(".eE") else int(digits)
    except ValueError:  # more digits than Python converts
        return None

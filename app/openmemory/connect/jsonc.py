"""Reads and edits JSON with comments and trailing commas. All text but the edited member stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

_STRING = r'"(?:[^"\\]++|\\.)*+"?'
_COMMENT = re.compile(rf"{_STRING}|//[^\n]*|/\*(?:[^*]++|\*(?!/))*+(?:\*/)?", re.DOTALL)
_TRAILING_COMMA = re.compile(rf"{_STRING}|,(?=\s*[}}\]])", re.DOTALL)
_BLANKS = re.compile(r"\s*")
_REST_OF_LINE = re.compile(r"[ \t]*+(?:/\*(?:[^*\n]++|\*(?!/))*+\*/[ \t]*+)*+(?://[^\r\n]*)?(?=\r?\n)")
"""Matches blanks and comments after a value, if nothing else follows on its line."""
_decoded = json.JSONDecoder().raw_decode

Key = str | int
"""The name of a member of an object, or the position of an item of an array."""


class JsoncError(ValueError):
    """The text is not JSON, or has something else where an object must be."""


def loads(text: str) -> Any:
    """Returns the value of a text. An empty text is an empty object.

    Raises:
        JsoncError: it is not JSON, even with comments and trailing commas allowed.
    """
    return _Document(text).value


def insert(text: str, path: Sequence[Key], value: Any) -> str:
    """Returns the text with `value` at `path`, which replaces what was there. Missing objects on the path are added. A
    position behind the last item of an array appends to it.

    Raises:
        JsoncError: the text is not JSON, or something on the path is not an object or array.
    """
    document = _Document(text)
    start = document.root
    if start == len(text):
        return text + json.dumps(_nest(path, value), indent=2, ensure_ascii=False) + "\n"
    for depth, key in enumerate(path):
        if document.strict[start] != ("{" if isinstance(key, str) else "["):
            kind = "object" if isinstance(key, str) else "array"
            raise JsoncError(f"{_dotted(path[:depth]) or 'the file'} is not an {kind}")
        target = next((member for member in document.members(start) if member.key == key), None)
        if target is None:
            return _add_member(document, start, key, _nest(path[depth + 1 :], value), depth=depth)
        start = target.start
    content = _render(value, *document.style, depth=len(path)) if "\n" in text else _inline(value)
    return text[:start] + content + text[document.end(start) :]


def remove(text: str, path: Sequence[Key]) -> str:
    """Returns the text without the member or item at `path`.

    Raises:
        JsoncError: the text is not JSON, or has no such member.
    """
    document = _Document(text)
    parent = start = document.root
    members: list[_Member] = []
    at: int | None = None
    for key in path:
        parent, members = start, document.members(start)
        at = next((number for number, member in enumerate(members) if member.key == key), None)
        if at is None:
            raise JsoncError(f"there is no {_dotted(path)}")
        start = members[at].start
    before, after = parent + 1, document.end(start)
    comma = document.comma(after)
    if at:
        separator = document.comma(members[at - 1].end)
        before = _end_of_line(text, separator + 1)
        if comma < 0:  # the last one takes the comma before it along
            return text[:separator] + text[separator + 1 : before] + text[after:]
    return text[:before] + text[max(comma + 1, after) :]


class _Member(NamedTuple):
    """A member of an object or an item of an array, with the places of its key and its value."""

    key: Key
    key_start: int
    start: int
    end: int


class _Document:
    """A text that is read as strict JSON of the same length, so that the decoder reports places in the text."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._plain = _COMMENT.sub(_blank_out, text)
        self.strict = _TRAILING_COMMA.sub(_blank_out, self._plain)
        self.root = self._after_blanks(0)
        try:
            self.value = json.loads(self.strict) if self.root < len(text) else {}
        except json.JSONDecodeError as error:
            raise JsoncError(f"line {error.lineno} is not JSON") from None

    def members(self, start: int) -> list[_Member]:
        """The members of the object or array at a place; none if there is something else."""
        members: list[_Member] = []
        opening = self.strict[start : start + 1]
        if opening not in ("{", "["):
            return members
        at = self._after_blanks(start + 1)
        while self.strict[at] not in "}]":
            key, value = len(members), at
            if opening == "{":
                key, end = _decoded(self.strict, at)
                value = self._after_blanks(self.strict.index(":", end) + 1)
            members.append(_Member(key, at, value, self.end(value)))
            at = self._after_blanks(members[-1].end)
            if self.strict[at] == ",":
                at = self._after_blanks(at + 1)
        return members

    def end(self, start: int) -> int:
        """The end of the value at a place."""
        return _decoded(self.strict, start)[1]

    def comma(self, end: int) -> int:
        """The place of the comma after a value, also of a trailing one, or -1."""
        at = self._after_blanks(end, self._plain)
        return at if self._plain[at : at + 1] == "," else -1

    @property
    def style(self) -> tuple[str, str]:
        """The indentation and the line break that the text uses."""
        newline = "\r\n" if "\r\n" in self.text else "\n"
        if members := self.members(self.root):
            start = members[0].key_start
            blanks = self.text[self.text.rfind("\n", 0, start) + 1 : start]
            if blanks and not blanks.strip(" \t"):
                return blanks, newline
        return "  ", newline

    def _after_blanks(self, at: int, text: str | None = None) -> int:
        match = _BLANKS.match(self.strict if text is None else text, at)
        assert match is not None
        return match.end()


def _blank_out(match: re.Match[str]) -> str:
    part = match.group()
    is_open = part.startswith("/*") and not part.endswith("*/", 2)
    return part if is_open or part.startswith('"') else re.sub(r"\S", " ", part)


def _add_member(document: _Document, start: int, key: Key, value: Any, *, depth: int) -> str:
    text, members = document.text, document.members(start)
    unit, newline = document.style
    name = f"{json.dumps(key, ensure_ascii=False)}: " if isinstance(key, str) else ""
    inline = "\n" not in text and bool(document.members(document.root))
    if inline:
        addition, separator = f"{name}{_inline(value)}", " " if members else ""
    else:
        addition = f"{name}{_render(value, unit, newline, depth=depth + 1)}"
        separator = newline + unit * (depth + 1)
    if not members:
        closing = document.end(start) - 1
        after = ("" if inline else newline + unit * depth) + text[closing:]
        return text[:closing].rstrip() + separator + addition + after
    last = members[-1].end
    comma = document.comma(last)
    if comma >= 0:
        end = _end_of_line(text, comma + 1)
        return text[:end] + separator + addition + "," + text[end:]
    end = last if inline else _end_of_line(text, last)
    return text[:last] + "," + text[last:end] + separator + addition + text[end:]


def _nest(path: Sequence[Key], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value} if isinstance(key, str) else [value]
    return value


def _dotted(path: Sequence[Key]) -> str:
    return ".".join(str(key) for key in path)


def _inline(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _render(value: Any, unit: str, newline: str, *, depth: int) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (newline + unit * depth).join(lines)


def _end_of_line(text: str, at: int) -> int:
    """The end of the comments that follow on the same line. `at` if anything else follows."""
    match = _REST_OF_LINE.match(text, at)
    return match.end() if match else at

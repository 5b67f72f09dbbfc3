"""Reads and edits JSON with comments and trailing commas. All text but the edited member stays as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

_TOKEN = re.compile(
    r"""
    (?P<space>(?:\s|//[^\n]*|/\*(?:[^*]|\*(?!/))*\*/)+)
  | (?P<string>"(?:[^"\\\x00-\x1f]|\\.)*")
  | (?P<mark>[{}\[\],:])
  | (?P<other>[^\s"{}\[\],:/]+)
    """,
    re.VERBOSE,
)
_DEEPEST = 100
_SAME_LINE = re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*)*(?://[^\n]*)?")
"""Matches blanks and comments after a value on its line."""


@dataclass(slots=True)
class _Node:
    """A value and its place in the text. `members` are those of an object, `comma` the end of a trailing comma."""

    value: Any
    start: int
    end: int = 0
    members: list[_JsoncMember] = field(default_factory=list)
    comma: int | None = None


@dataclass(slots=True)
class _JsoncMember:
    key: str
    start: int
    node: _Node


class JsoncError(ValueError):
    """The text is not JSON, or has something else where an object must be."""


def loads(text: str) -> Any:
    """Returns the value of a text. An empty text is an empty object.

    Raises:
        JsoncError: it is not JSON, even with comments and trailing commas allowed.
    """
    return _JsoncParser(text).document().value


def insert(text: str, path: Sequence[str], value: Any) -> str:
    """Returns the text with `value` at `path`, which replaces what was there. Missing objects on the path are added.

    Raises:
        JsoncError: the text is not JSON, or something on the path is not an object.
    """
    root = _JsoncParser(text).document()
    if root.end == root.start:
        return text + json.dumps(_nested(path, value), indent=2, ensure_ascii=False) + "\n"
    node, rest = root, list(path)
    while True:
        if not isinstance(node.value, dict):
            where = ".".join(path[: len(path) - len(rest)]) or "the file"
            raise JsoncError(f"{where} is not an object")
        found = next((member.node for member in node.members if member.key == rest[0]), None)
        if found is None:
            return _added(text, root, node, rest[0], _nested(rest[1:], value), depth=len(path) - len(rest))
        node, rest = found, rest[1:]
        if not rest:
            unit, newline = _style(text, root)
            shown = _shown(value, unit, newline, depth=len(path)) if "\n" in text else _inline(value)
            return text[: node.start] + shown + text[node.end :]


def remove(text: str, path: Sequence[str]) -> str:
    """Returns the text without the member at `path`.

    Raises:
        JsoncError: the text is not JSON, or has no such member.
    """
    node = _JsoncParser(text).document()
    for key in path[:-1]:
        node = next((member.node for member in node.members if member.key == key), _Node(None, 0))
    at = next((n for n, member in enumerate(node.members) if member.key == path[-1]), None)
    if at is None:
        raise JsoncError(f"there is no {'.'.join(path)}")
    member = node.members[at]
    before = _end_of_line(text, node.members[at - 1].node.end, comma=True) if at else node.start + 1
    if at == len(node.members) - 1:
        # The last one: with it goes the comma before it, unless commas trail here.
        if node.comma is not None:
            return text[:before] + text[node.comma :]
        kept = text[:before]
        if at:
            previous = node.members[at - 1].node.end
            kept = text[:previous] + text[previous:before].replace(",", "", 1)
        return kept + text[member.node.end :]
    after = text.index(",", _skipped(text, member.node.end)) + 1
    return text[:before] + text[after:]


def _added(text: str, root: _Node, node: _Node, key: str, value: Any, *, depth: int) -> str:
    unit, newline = _style(text, root)
    name = json.dumps(key, ensure_ascii=False)
    inline = "\n" not in text and bool(root.members)
    if inline:
        shown, separator = f"{name}: {_inline(value)}", " " if node.members else ""
    else:
        shown = f"{name}: {_shown(value, unit, newline, depth=depth + 1)}"
        separator = newline + unit * (depth + 1)
    if not node.members:
        inside = text[node.start + 1 : node.end - 1]
        closing = "" if inline else newline + unit * depth
        return text[: node.start + 1] + inside.rstrip() + separator + shown + closing + text[node.end - 1 :]
    last = node.members[-1].node.end
    if node.comma is not None:
        end = _end_of_line(text, node.comma)
        return text[:end] + separator + shown + "," + text[end:]
    end = last if inline else _end_of_line(text, last)
    return text[:last] + "," + text[last:end] + separator + shown + text[end:]


def _nested(path: Sequence[str], value: Any) -> Any:
    for key in reversed(path):
        value = {key: value}
    return value


def _inline(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _shown(value: Any, unit: str, newline: str, *, depth: int) -> str:
    lines = json.dumps(value, indent=unit, ensure_ascii=False).split("\n")
    return (newline + unit * depth).join(lines)


def _style(text: str, root: _Node) -> tuple[str, str]:
    """The indentation and the line break that a text uses."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if root.members:
        start = root.members[0].start
        blanks = text[text.rfind("\n", 0, start) + 1 : start]
        if blanks and not blanks.strip(" \t"):
            return blanks, newline
    return "  ", newline


def _skipped(text: str, at: int) -> int:
    found = _TOKEN.match(text, at)
    return found.end() if found and found.lastgroup == "space" else at


def _end_of_line(text: str, at: int, *, comma: bool = False) -> int:
    """The end of the comments that follow on the same line, behind a comma if there is one. `at` if anything else
    follows."""
    if comma:
        following = _skipped(text, at)
        if text[following : following + 1] == ",":
            at = following + 1
    found = _SAME_LINE.match(text, at)
    end = found.end() if found else at
    if text[end - 1 : end] == "\r":
        end -= 1
    return end if text[end : end + 2].startswith(("\n", "\r\n")) else at


class _JsoncParser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def document(self) -> _Node:
        self._space()
        if self._at == len(self._text):
            return _Node({}, self._at, self._at)
        node = self._value(0)
        self._space()
        if self._at != len(self._text):
            self._fail()
        return node

    def _value(self, depth: int) -> _Node:
        if depth > _DEEPEST:
            raise JsoncError(f"more than {_DEEPEST} levels")
        start = self._at
        kind, part = self._next()
        if part == "{":
            return self._object(start, depth)
        if part == "[":
            return self._array(start, depth)
        if kind not in ("string", "other"):
            self._at = start
            self._fail()
        try:
            return _Node(json.loads(part), start, self._at)
        except ValueError:
            self._at = start
            self._fail()

    def _object(self, start: int, depth: int) -> _Node:
        node = _Node({}, start)
        while not self._closed("}", node, bool(node.members)):
            at = self._at
            kind, part = self._next()
            if kind != "string":
                self._at = at
                self._fail()
            self._space()
            if self._next()[1] != ":":
                self._fail()
            self._space()
            member = _JsoncMember(json.loads(part), at, self._value(depth + 1))
            node.members.append(member)
            node.value[member.key] = member.node.value
        return node

    def _array(self, start: int, depth: int) -> _Node:
        node = _Node([], start)
        while not self._closed("]", node, bool(node.value)):
            node.value.append(self._value(depth + 1).value)
        return node

    def _closed(self, closing: str, node: _Node, separated: bool) -> bool:
        """Moves to the next part of an object or array. Returns True if there is none."""
        self._space()
        if separated and self._text[self._at : self._at + 1] == ",":
            self._at += 1
            node.comma = self._at
            self._space()
        elif separated and self._text[self._at : self._at + 1] != closing:
            self._fail()
        elif separated:
            node.comma = None
        if self._text[self._at : self._at + 1] != closing:
            node.comma = None
            return False
        self._at += 1
        node.end = self._at
        return True

    def _space(self) -> None:
        self._at = _skipped(self._text, self._at)

    def _next(self) -> tuple[str, str]:
        found = _TOKEN.match(self._text, self._at)
        if found is None or found.lastgroup is None:
            self._fail()
        self._at = found.end()
        return found.lastgroup, found.group()

    def _fail(self) -> NoReturn:
        line = self._text.count("\n", 0, self._at) + 1
        raise JsoncError(f"line {line} is not JSON")

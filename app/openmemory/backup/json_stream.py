"""Streams JSON that is too large for memory: one object of lists, entry by entry, or JSON Lines.

The end of an entry is found by its brackets and quotes. orjson decodes and thereby checks its content.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container, Iterator
from contextlib import suppress
from typing import Any, NamedTuple

import orjson

from openmemory.backup.format import DEFAULT_LIMITS, MAX_DEPTH, StreamLimits, kind_of, malformed
from openmemory.serialization.exact_json import has_long_number
from openmemory.serialization.json_limits import more_than
from openmemory.serialization.surrogates import replace_in_json

Read = Callable[[int], bytes]
"""Reads at most the given number of bytes from a stream; b"" at its end."""

_CHUNK = 128 * 1024
_SPACE = b" \t\r\n"
_FLAT = re.compile(rb'(?:[^"\[\]{}]++|"(?:[^"\\]++|\\.)*+")*+', re.DOTALL)
"""The text between two brackets: characters outside of strings, and whole strings."""
_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
_SCALAR = re.compile(rb"[^,\]}\s]*+")
_BLANK = re.compile(rb"[ \t\r\n]*+")


class RawRecord(dict[str, Any]):
    """A record that may hold values that JSON does not allow: Python's NaN and infinity."""


class StreamedValue(NamedTuple):
    """A value of the object. `number` counts list entries from 0; -1: the list begins; None: not in a list."""

    key: str
    number: int | None
    value: Any

    @property
    def place(self) -> str:
        """The place of the value, such as `memories[17]`."""
        return self.key if self.number is None else f"{self.key}[{self.number}]"


def entries(
    read: Read, name: str, *, most: StreamLimits = DEFAULT_LIMITS, members: Container[str] | None = None
) -> Iterator[StreamedValue]:
    """The entries of the object, in order.

    `name` names the object in messages. `members`: the names of the members to decode; None: all. The values of the
    others are None.

    Raises:
        BadArchive: it is not JSON, not an object, names a member twice, or has an entry that is too large or too deep.
    """
    text = _Buffer(read, name, most)
    if text.peek() != b"{":
        raise malformed(name, "must be a JSON object")
    text.take(1)
    keys: set[str] = set()
    first = True
    while text.next_of(b"}", first=first, place=name):
        first = False
        key = _decode(text.value(name), name, most)
        if not isinstance(key, str) or text.peek() != b":":
            raise malformed(name, "is not valid JSON: a key and a colon are expected")
        text.take(1)
        if key in keys:
            raise malformed(_escaped(key), "is there twice")
        keys.add(key)
        decode = _decode if members is None or key in members else _check_limits
        if text.peek() != b"[":
            yield StreamedValue(key, None, decode(text.value(_escaped(key)), _escaped(key), most))
            continue
        text.take(1)
        yield StreamedValue(key, -1, None)
        number = 0
        while text.next_of(b"]", first=number == 0, place=_escaped(key)):
            place = f"{_escaped(key)}[{number}]"
            yield StreamedValue(key, number, decode(text.value(place), place, most))
            number += 1
    if text.peek():
        raise malformed(name, "is not valid JSON: there is data after its end")


def lines(read: Read, name: str, *, most: StreamLimits = DEFAULT_LIMITS) -> Iterator[tuple[str, dict[str, Any]]]:
    """The objects of JSON Lines, each with its place, such as `revisions.jsonl.gz, line 3`.

    Raises:
        BadArchive: a line is not a JSON object, or is too long.
    """
    rest = b""
    number = 0
    while True:
        data = read(_CHUNK)
        whole, newline, rest = (rest + data).rpartition(b"\n") if data else (rest, b"", b"")
        if not newline and data:
            if len(rest) > most.bytes:
                raise malformed(f"{name}, line {number + 1}", _too_large(most))
            continue
        for line in whole.split(b"\n"):
            number += 1
            if line.strip():
                place = f"{name}, line {number}"
                value = _decode(line, place, most)
                if not isinstance(value, dict):
                    raise malformed(place, f"must be a JSON object, not {kind_of(value)}")
                yield place, value
        if not data:
            return


class _Buffer:
    """The buffered part of the stream."""

    def __init__(self, read: Read, name: str, most: StreamLimits) -> None:
        self._read = read
        self._most = most
        self._name = name
        self._data = read(_CHUNK).removeprefix(b"\xef\xbb\xbf")
        self._at = 0

    def peek(self) -> bytes:
        """The next byte that is not whitespace; b"" at the end."""
        while True:
            match = _BLANK.match(self._data, self._at)
            assert match is not None
            self._at = match.end()
            if self._at < len(self._data):
                return self._data[self._at : self._at + 1]
            if not self._more(self._at):
                return b""

    def take(self, count: int) -> None:
        """Skips `count` bytes."""
        self._at += count

    def next_of(self, end: bytes, *, first: bool, place: str) -> bool:
        """Returns True if another value follows in a list or an object. Skips the comma or the closing bracket."""
        sign = self.peek()
        if sign == end:
            self.take(1)
            return False
        if not first:
            if sign != b",":
                raise malformed(place, "is not valid JSON: " + ("a comma is missing" if sign else "it ends too soon"))
            self.take(1)
            sign = self.peek()
        if sign in (b"", b",", b"]", b"}"):
            raise malformed(place, "is not valid JSON: " + ("a value is missing" if sign else "it ends too soon"))
        return True

    def value(self, place: str) -> bytes:
        """The raw bytes of the next value."""
        sign = self.peek()
        end = self._at
        if sign == b'"':
            end = self._match(_STRING, place)
        elif sign in (b"{", b"["):
            end = self._nested(place)
        else:
            end = self._scalar(place)
        value, self._at = self._data[self._at : end], end
        return value

    def _match(self, pattern: re.Pattern[bytes], place: str) -> int:
        while True:
            match = pattern.match(self._data, self._at)
            if match is not None:
                return match.end()
            self._grow(place)

    def _scalar(self, place: str) -> int:
        while True:
            match = _SCALAR.match(self._data, self._at)
            assert match is not None
            if match.end() < len(self._data) or not self._more(self._at):
                return match.end()
            self._check_size(place)

    def _nested(self, place: str) -> int:
        depth = 0
        offset = 0
        while True:
            match = _FLAT.match(self._data, self._at + offset)
            assert match is not None
            offset = match.end() - self._at
            sign = self._data[match.end() : match.end() + 1]
            if sign in (b"", b'"'):
                self._grow(place)
                continue
            offset += 1
            depth += 1 if sign in b"[{" else -1
            if depth > MAX_DEPTH:
                raise malformed(place, f"is nested more than {MAX_DEPTH} levels deep")
            if depth == 0:
                return self._at + offset

    def _grow(self, place: str) -> None:
        if not self._more(self._at):
            raise malformed(place, "is not valid JSON: it ends too soon")
        self._check_size(place)

    def _check_size(self, place: str) -> None:
        if len(self._data) - self._at > self._most.bytes + _CHUNK:
            raise malformed(place, _too_large(self._most))

    def _more(self, keep: int) -> bool:
        """Reads more data and drops everything before `keep`. Returns False at the end of the stream."""
        # The buffer doubles each time, so a long string is scanned a few times and not once for every chunk.
        pending = self._data[keep:]
        pieces = [pending]
        remaining = max(_CHUNK, len(pending))
        while remaining > 0 and (data := self._read(_CHUNK)):
            pieces.append(data)
            remaining -= len(data)
        self._data = b"".join(pieces)
        self._at -= keep
        return len(pieces) > 1


def _decode(raw: bytes, place: str, most: StreamLimits) -> Any:
    _check_limits(raw, place, most)
    raw = replace_in_json(raw)
    if not has_long_number(raw):
        with suppress(orjson.JSONDecodeError):
            return orjson.loads(raw)
    return _decode_exactly(raw, place)


def _check_limits(raw: bytes, place: str, most: StreamLimits) -> None:
    """Rejects values that are too large, before they are decoded."""
    if len(raw) > most.bytes:
        raise malformed(place, _too_large(most))
    if more_than(most.values, raw):
        raise malformed(place, f"has more than {most.values:,} JSON values (limits.json_values)")


def _decode_exactly(raw: bytes, place: str) -> Any:
    """Decodes values written by Python that orjson rejects or rounds. The code that stores them decides their fate."""
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise malformed(place, f"is not valid JSON: {str(error)[:200]}") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise malformed(place, "is not valid JSON: NaN and infinity are not numbers")
    return RawRecord(value) if isinstance(value, dict) else value


def _too_large(most: StreamLimits) -> str:
    return f"is larger than {most.bytes:,} bytes"


def _escaped(key: str) -> str:
    """A key of the object, escaped for messages."""
    return key.encode("ascii", "backslashreplace").decode()[:60]

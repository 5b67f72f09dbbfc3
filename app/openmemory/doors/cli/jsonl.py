"""The exchange format of `import` and `export`: one memory per line, as a JSON object."""

from __future__ import annotations

import difflib
import json
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, BinaryIO

from openmemory.importers.cleaning import names
from openmemory.serialization.exact_json import finite
from openmemory.serialization.surrogates import replace_in_json
from openmemory.serialization.timestamps import epoch_time

IGNORED = ("id", "hash", "revision", "updated_at", "archived_at", "deleted_at")
"""Further fields of an export, which the importing service creates anew."""
STATES = ("active", "paused", "archived", "deleted")
"""States that an export may write. A deleted memory is not imported: it would exist again until it is deleted again."""
_MAX_LINE_BYTES = 8 * 1024 * 1024
_MAX_NUMBER = 1e15
"""A bound above any valid time or importance. Infinity and huge integers are rejected with the line's number."""


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < _MAX_NUMBER


_TEXT = _is_text, "must be a string"


def _is_time(value: Any) -> bool:
    try:
        return _is_text(value) or epoch_time(value) is not None
    except ValueError:
        return False


_TIME = _is_time, "must be ISO 8601, such as 2026-01-31T12:00:00Z, or a number since 1970"
FIELDS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "text": _TEXT,
    "user": _TEXT,
    "app": _TEXT,
    "namespace": _TEXT,
    "thread_id": _TEXT,
    "kind": _TEXT,
    "key": _TEXT,
    "created_at": _TIME,
    "expires_at": _TIME,
    "metadata": (lambda value: isinstance(value, dict), "must be an object"),
    "importance": (_is_number, "must be a number from 0 to 1"),
    "categories": (
        lambda value: _is_text(value) or (isinstance(value, list) and all(map(_is_text, value))),
        "must be a list of strings",
    ),
    "state": (lambda value: value in STATES, f"must be one of {', '.join(STATES)}"),
}
"""Fields that an import reads, with the check of a value and the problem if it fails. The service checks the rest."""
_KNOWN = f"valid fields are {', '.join(FIELDS)}; put anything else into metadata"


@dataclass(frozen=True, slots=True)
class Line:
    """One line of an import: a memory, or the problem that makes it invalid. `number` counts from 1."""

    number: int
    offset: int
    """Bytes read of the file so far, this line included."""
    size: int
    memory: dict[str, Any]
    problem: str | None = None

    @property
    def state(self) -> str:
        """The state that the memory should have."""
        return str(self.memory.get("state", "active"))


def read_lines(file: BinaryIO) -> Iterator[Line]:
    """All lines that are not blank, one at a time, including invalid ones."""
    number = offset = 0
    while raw := file.readline(_MAX_LINE_BYTES + 1):
        number += 1
        offset += len(raw)
        if len(raw) > _MAX_LINE_BYTES and not raw.endswith(b"\n"):
            while rest := file.readline(_MAX_LINE_BYTES):
                offset += len(rest)
                if rest.endswith(b"\n"):
                    break
            yield Line(number, offset, 0, {}, f"is longer than {_MAX_LINE_BYTES} bytes")
            continue
        if number == 1:
            raw = raw.removeprefix(b"\xef\xbb\xbf")
        if not raw.strip():
            continue
        try:
            memory = parse(raw)
        except ValueError as error:
            yield Line(number, offset, len(raw), {}, str(error))
        else:
            yield Line(number, offset, len(raw), memory)


def parse(raw: bytes) -> dict[str, Any]:
    """A memory from one line, with fields of the right types. The service validates the values.

    Raises:
        ValueError: the line is not a memory; the message says why.
    """
    try:
        memory = json.loads(replace_in_json(raw).decode("utf-8"), parse_constant=_refuse_constant)
    except UnicodeDecodeError as error:
        raise ValueError(f"is not UTF-8 (byte {error.start + 1})") from None
    except json.JSONDecodeError as error:
        raise ValueError(f"is not JSON: {error.msg} (column {error.colno})") from None
    except RecursionError:
        raise ValueError("is nested too deeply") from None
    if not isinstance(memory, dict):
        raise ValueError('must be a JSON object such as {"text": "..."}')
    for name in memory:
        if name not in FIELDS and name not in IGNORED:
            close = difflib.get_close_matches(name, FIELDS, 1)
            raise ValueError(f"unknown field {name!r}; {f'did you mean {close[0]!r}?' if close else _KNOWN}")
    memory = {name: value for name, value in memory.items() if name in FIELDS and value is not None}
    if "text" not in memory:
        raise ValueError("text: is missing")
    for name, value in memory.items():
        valid, problem = FIELDS[name]
        if not valid(value):
            raise ValueError(f"{name}: {problem}")
    memory = _in_usual_form(memory)
    try:
        if finite(memory.get("metadata"))[1]:
            raise ValueError("metadata: must not contain infinite numbers, which JSON does not allow")
        json.dumps(memory)
    except RecursionError:
        raise ValueError("metadata: is nested too deeply") from None
    return memory


def _in_usual_form(memory: dict[str, Any]) -> dict[str, Any]:
    """The memory with its times in ISO 8601 and its categories as a list."""
    times = {name: at.isoformat() for name in _TIMES if (at := epoch_time(memory.get(name))) is not None}
    categories = {"categories": names(memory["categories"])} if "categories" in memory else {}
    return memory | times | categories


_TIMES = ("created_at", "expires_at")


def batches(lines: Iterable[Line], *, count: int, size: int) -> Iterator[list[Line]]:
    """Groups consecutive lines into requests: each for one user, with at most `count` lines and `size` bytes.

    A line with a problem, or with a memory that is not active, is a batch of its own.
    """
    batch: list[Line] = []
    total = 0
    for line in lines:
        alone = line.problem is not None or line.state != "active"
        if batch and (
            alone
            or len(batch) >= count
            or total + line.size > size
            or line.memory.get("user") != batch[0].memory.get("user")
        ):
            yield batch
            batch, total = [], 0
        if alone:
            yield [line]
            continue
        batch.append(line)
        total += line.size
    if batch:
        yield batch


def _refuse_constant(name: str) -> None:
    raise ValueError(f"is not JSON: {name} is not a number")

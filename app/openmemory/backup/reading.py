"""Reads an archive as batches of rows. A thread reads a batch while the event loop copies the previous one."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from openmemory.backup import json_stream
from openmemory.backup.container import Container
from openmemory.backup.fields import Row
from openmemory.backup.format import TABLES, kind_of, malformed, most_of, too_much
from openmemory.backup.records import Records
from openmemory.backup.staging import TABLES as STAGING
from openmemory.schema.archives import MEMBERS, MEMORY_LINES, SECTIONS
from openmemory.schema.description import ArchiveList
from openmemory.serialization import exact_json

_TOGETHER = 256 * 1024
"""Bytes copied at once."""

_OBJECTS = ("user", "export_meta")
_ORDER: dict[str, Callable[[Row], Sequence[Any]]] = {
    table: itemgetter(*(name for name, _ in columns)) for table, columns in STAGING.items()
}

_SPECIAL = re.compile(r"[\\\t\n\r]")
_ESCAPES = str.maketrans({"\\": r"\\", "\t": r"\t", "\n": r"\n", "\r": r"\r"})


@dataclass(frozen=True, slots=True)
class CopyRows:
    """Rows for one table in COPY format, and the number of archive bytes read so far."""

    table: str
    data: bytes
    read: int


def rows(container: Container, records: Records) -> Iterator[CopyRows]:
    """All rows of an archive, in archive order.

    Raises:
        BadArchive: the archive has invalid content; the message names the place.
    """
    pending: defaultdict[str, list[bytes]] = defaultdict(list)
    sizes: defaultdict[str, int] = defaultdict(int)
    for table, row in _records(container, records):
        line = copy_line(_ORDER[table](row))
        pending[table].append(line)
        sizes[table] += len(line)
        if sizes[table] >= _TOGETHER:
            sizes[table] = 0
            yield CopyRows(table, b"".join(pending.pop(table)), container.read)
    records.finish()
    for table, lines in pending.items():
        yield CopyRows(table, b"".join(lines), container.read)


def _records(container: Container, records: Records) -> Iterator[tuple[str, Row]]:
    yield from _tables(container, records)
    for name, of in MEMBERS.items():
        if of is not MEMORY_LINES and name in container:
            with container.open(name) as read:
                for number, (place, value) in enumerate(json_stream.lines(read, name, most=most_of(records.limits)), 1):
                    _count(of, number)
                    if (row := records.row(of, place, number, value)) is not None:
                        yield row
    if MEMORY_LINES.name in container:
        # This member repeats the tables. It is read only to check that it is intact.
        with container.open(MEMORY_LINES.name) as read:
            while read(_TOGETHER):
                pass


def _tables(container: Container, records: Records) -> Iterator[tuple[str, Row]]:
    has_memories = False
    with container.open(TABLES) as read:
        for entry in json_stream.entries(read, TABLES, most=most_of(records.limits), members=(*_OBJECTS, *SECTIONS)):
            has_memories = has_memories or entry.key == "memories"
            if entry.key in _OBJECTS:
                if entry.number is not None:
                    raise malformed(entry.key, "must be an object, not a list")
                records.object(entry.key, entry.value)
            elif entry.key in SECTIONS:
                if entry.number is None and entry.value is not None:
                    raise malformed(entry.key, f"must be a list, not {kind_of(entry.value)}")
                if entry.number is not None and entry.number >= 0:
                    _count(SECTIONS[entry.key], entry.number + 1)
                    row = records.row(SECTIONS[entry.key], entry.place, entry.number, entry.value)
                    if row is not None:
                        yield row
    if not has_memories:
        raise malformed("memories", f"is missing in {TABLES}")


def _count(of: ArchiveList, count: int) -> None:
    if count > of.most:
        raise too_much(f"{of.name} has more than {of.most:,} entries")


def copy_line(values: Sequence[Any]) -> bytes:
    """A row in COPY text format."""
    return ("\t".join(_field(value) for value in values) + "\n").encode()


def _field(value: Any) -> str:
    if value is None:
        return "\\N"
    if isinstance(value, str):
        # Few strings contain a special character, and checking takes a tenth of the time of replacing.
        return value if _SPECIAL.search(value) is None else value.translate(_ESCAPES)
    return _FORMS[type(value)](value)


def _json(value: Any) -> str:
    text = exact_json.for_jsonb(value)
    return text if _SPECIAL.search(text) is None else text.translate(_ESCAPES)


_FORMS: dict[type, Callable[[Any], str]] = {
    bool: lambda value: "t" if value else "f",
    int: repr,
    float: repr,
    bytes: lambda value: "\\\\x" + value.hex(),
    list: lambda value: "{" + ",".join(value) + "}",  # ids and labels, which never need quotes
    dict: _json,
}

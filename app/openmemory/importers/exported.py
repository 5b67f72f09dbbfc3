"""Inspects an export zip before it is sent: its user and its size. It is read as a stream, with size limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from openmemory.backup.container import Container
from openmemory.backup.format import ACCESSES, TABLES
from openmemory.backup.json_stream import StreamedValue, entries, lines
from openmemory.importers.archive import ArchiveCounts
from openmemory.importers.cleaning import STATES

_UNPACKED = 64 * 1024 * 1024 * 1024
"""Maximum number of unpacked bytes that are inspected. The importing service has its own limit."""


def memories_of(path: Path) -> Iterator[dict[str, Any]]:
    """The memories of an export.

    Raises:
        BadArchive: the file is not an export, or is broken.
    """
    for entry in _tables(path):
        if entry.key == "memories" and isinstance(entry.value, dict) and "id" in entry.value:
            yield entry.value


def contents_of(path: Path) -> tuple[str, ArchiveCounts]:
    """The user of an export, and the counts of its contents.

    Raises:
        BadArchive: the file is not an export, or is broken.
    """
    lists: Counter[str] = Counter()
    states = dict.fromkeys(STATES, 0)
    user = ""
    for entry in _tables(path):
        values = entry.value if isinstance(entry.value, dict) else {}
        if entry.key == "user" and isinstance(values.get("user_id"), str):
            user = values["user_id"]
        if entry.number is not None and entry.number >= 0:
            lists[entry.key] += 1
            state = values.get("state")
            if entry.key == "memories" and isinstance(state, str) and state in states:
                states[state] += 1
    return user, ArchiveCounts(
        memories=states,
        apps=lists["apps"],
        categories=lists["categories"],
        history=lists["status_history"],
        access_logs=_accesses(path),
        rules=lists["access_controls"],
        policies=lists["archive_policies"],
    )


def has_accesses(path: Path) -> bool:
    """Returns True if the export contains the access log, as exports of this service do."""
    with opened(path) as container:
        return ACCESSES in container


@contextmanager
def opened(path: Path) -> Iterator[Container]:
    """The members of an export."""
    with path.open("rb") as file:
        yield Container(file, unpacked=_UNPACKED)


def _tables(path: Path) -> Iterator[StreamedValue]:
    with opened(path) as container, container.open(TABLES) as read:
        yield from entries(read, TABLES)


def _accesses(path: Path) -> int:
    with opened(path) as container:
        if ACCESSES not in container:
            return 0
        with container.open(ACCESSES) as read:
            return sum(1 for _ in lines(read, ACCESSES))

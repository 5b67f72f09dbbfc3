"""Inspects an export zip before it is sent: its user and its size. It is read as a stream, with size limits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from openmemory.backup.container import Container
from openmemory.backup.format import DEFAULT_LIMITS, TABLES, StreamLimits
from openmemory.backup.json_stream import StreamedValue, entries, lines
from openmemory.importers.archive import ArchiveCounts
from openmemory.importers.cleaning import STATES
from openmemory.importers.source import ReadingLimit
from openmemory.schema.archives import ACCESS_LOGS, APPS

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


def contents_of(
    file: BinaryIO,
    *,
    unpacked: int = _UNPACKED,
    most: StreamLimits = DEFAULT_LIMITS,
    limit: ReadingLimit | None = None,
) -> tuple[str, ArchiveCounts]:
    """The user of an export, and the counts of its contents. `unpacked`: maximum number of unpacked bytes;
    `most`: limits of one entry.

    Raises:
        BadArchive: the file is not an export, or is broken.
        BadSource: reading exceeds the limit.
    """
    lists: Counter[str] = Counter()
    states = dict.fromkeys(STATES, 0)
    names: dict[str, str] = {}
    by_app: Counter[str] = Counter()
    user = ""
    container = Container(file, unpacked=unpacked)
    with container.open(TABLES) as read:
        for entry in entries(read, TABLES, most=most):
            if limit is not None:
                limit.check()
            values = entry.value if isinstance(entry.value, dict) else {}
            if entry.key == "user" and isinstance(values.get("user_id"), str):
                user = values["user_id"]
            if entry.number is None or entry.number < 0:
                continue
            lists[entry.key] += 1
            if entry.key == "apps" and len(names) < APPS.most:
                names[str(values.get("id"))] = str(values.get("name"))
            if entry.key == "memories":
                by_app[str(values.get("app_id"))] += 1
                state = values.get("state")
                if isinstance(state, str) and state in states:
                    states[state] += 1
    return user, ArchiveCounts(
        memories=states,
        by_app=_counts_by_name(by_app, names),
        apps=lists["apps"],
        categories=lists["categories"],
        history=lists["status_history"],
        access_logs=_accesses(container, most, limit),
        rules=lists["access_controls"],
        policies=lists["archive_policies"],
    )


def _counts_by_name(by_app: Counter[str], names: Mapping[str, str]) -> dict[str, int]:
    """The numbers of memories by the names of their apps."""
    counts: Counter[str] = Counter()
    for id_, count in by_app.items():
        if id_ in names:
            counts[names[id_]] += count
    return dict(counts.most_common())


def has_accesses(path: Path) -> bool:
    """Returns True if the export contains the access log, as exports of this service do."""
    with opened(path) as container:
        return ACCESS_LOGS.name in container


@contextmanager
def opened(path: Path) -> Iterator[Container]:
    """The members of an export."""
    with path.open("rb") as file:
        yield Container(file, unpacked=_UNPACKED)


def _tables(path: Path) -> Iterator[StreamedValue]:
    with opened(path) as container, container.open(TABLES) as read:
        yield from entries(read, TABLES)


def _accesses(container: Container, most: StreamLimits, limit: ReadingLimit | None) -> int:
    if ACCESS_LOGS.name not in container:
        return 0
    count = 0
    with container.open(ACCESS_LOGS.name) as read:
        for _ in lines(read, ACCESS_LOGS.name, most=most):
            if limit is not None:
                limit.check()
            count += 1
    return count

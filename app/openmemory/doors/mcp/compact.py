"""The compact form of answers: one line for each memory, for a model to read.

Our lines begin in the first column. A text of several lines is indented from its second line on, and names are put on
one line, so nothing that a memory holds can look like a line of ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Protocol
from zoneinfo import ZoneInfo

from openmemory.content_policy.injection import LABEL
from openmemory.projects.schemas import ValuePage
from openmemory.serialization.zones import day_shown
from openmemory.sources.schemas import DocumentPage, SessionPage, ThreadPage


class MemorySummary(Protocol):
    """The fields of a memory that the compact form shows or mentions."""

    @property
    def created_at(self) -> datetime: ...
    @property
    def namespace(self) -> str: ...
    @property
    def labels(self) -> Sequence[str]: ...
    @property
    def expires_at(self) -> datetime | None: ...
    @property
    def valid_until(self) -> datetime | None: ...


def block(text: str) -> str:
    """Returns a text whose further lines are indented."""
    return "\n  ".join(text.splitlines())


def inline(text: str) -> str:
    """Returns a text on one line."""
    return " ".join(text.split())


def sentences(*notes: str | None) -> str | None:
    """Returns the notes one after the other, each ended by a mark; None if there are none."""
    texts = [note for note in notes if note]
    parts = [note if note.endswith((".", "?", "!")) else f"{note}." for note in texts[:-1]]
    return " ".join([*parts, *texts[-1:]]) or None


SHORT = 80
"""The maximum length of a shortened text."""


def shorten(text: str) -> str:
    """Returns the beginning of a text on one line."""
    line = inline(text)
    return line if len(line) <= SHORT else f"{line[: SHORT - 1]}…"


def memory_line(
    short: str, memory: MemorySummary, app: str, text: str, marks: Iterable[str] = (), *, zone: ZoneInfo
) -> str:
    """Returns the line of a memory: short id, date in the time zone, app, what is unusual in brackets, and the text.
    `app` and `text` are wrapped already if they read like instructions."""
    label = "; ".join(map(inline, marks))
    return f"{short} {day_shown(memory.created_at, zone)} {inline(app)}{label and f' [{label}]'}: {block(text)}"


def listing(lines: list[str], page: ThreadPage | SessionPage | DocumentPage | ValuePage, nothing: str) -> list[str]:
    """The lines of a page, and the number of the next one if there are more. `nothing` stands for no lines."""
    if not lines:
        return [nothing]
    more = further(page)
    return [*lines, more] if more else lines


def further(page: ThreadPage | SessionPage | DocumentPage | ValuePage) -> str | None:
    """The line about the pages that follow; None if there are none."""
    more = page.total > page.page * page.size
    return f"{page.total} in all; page {page.page + 1} has more." if more else None


def brackets(labels: Sequence[str], namespace: str, project: str | None) -> str:
    """Returns what is unusual about a passage, after a blank: flagged, or of another namespace than `project`. Empty if
    nothing is."""
    marks = ["flagged"] if labels else []
    marks += [f"namespace {inline(namespace)}"] if namespace not in ("default", project) else []
    return f" [{'; '.join(marks)}]" if marks else ""


def unusual(memory: MemorySummary, project: str | None, namespace: str, zone: ZoneInfo) -> list[str]:
    """Returns what most memories are not: flagged, ending, or of another namespace than `project`. `namespace` is the
    memory's namespace as it is shown, `zone` the time zone of dates."""
    marks = ["flagged"] if LABEL in memory.labels else []
    marks += [f"valid until {day_shown(memory.valid_until, zone)}"] if memory.valid_until else []
    marks += [f"expires {day_shown(memory.expires_at, zone)}"] if memory.expires_at else []
    if memory.namespace not in ("default", project and project.strip()):
        marks.append(f"namespace {namespace}")
    return marks

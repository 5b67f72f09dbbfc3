"""Remembers what the hooks left out of the sessions of assistants, in a small file for each session, and shows it to
`openmemory doctor`. Imports little: see `openmemory.doors.cli.hook`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

SUFFIX = ".left"
INTERRUPTED = "the hook ended before the service had answered"
_MOST_PARTS = 100
"""Parts of a transcript that are remembered; the newest count."""
_LONGEST = 200
"""Characters of a reason."""


class LeftOut:
    """The messages of one session that were not stored, with the reasons, and the reason why the rest waits."""

    def __init__(self, place: str, transcript: str) -> None:
        self._place = place
        self._transcript = transcript
        self._now: Counter[str] = Counter()

    def add(self, reason: str, count: int = 1) -> None:
        """Adds messages to the part of the transcript that is read now."""
        if count:
            self._now[" ".join(reason.split())[:_LONGEST]] += count

    def save(self, start: int) -> None:
        """Writes down what the part that begins at `start` left out. A part that is read again is not counted twice."""
        record = self._read()
        record["parts"].pop(str(start), None)
        if self._now:
            record["parts"][str(start)] = dict(self._now)
            record["parts"] = dict(list(record["parts"].items())[-_MOST_PARTS:])
        self._now.clear()
        self._write(record)

    def waits(self, reason: str | None) -> None:
        """Writes down why the rest of the transcript is not stored yet; None: all of it is."""
        self._now.clear()
        self._write(self._read() | {"waiting": reason and " ".join(reason.split())[:_LONGEST]})

    def _read(self) -> dict[str, Any]:
        return {"transcript": self._transcript, "parts": {}} | _load(self._place)

    def _write(self, record: dict[str, Any]) -> None:
        if not record["parts"] and not record.get("waiting"):
            with suppress(FileNotFoundError):
                os.unlink(self._place)
            return
        new = f"{self._place}.new"
        with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "w") as file:
            json.dump(record, file)
        os.replace(new, self._place)


class LeftOutOfSession(NamedTuple):
    """A session of which messages were left out: their number by reason, and the reason why the rest waits."""

    transcript: str
    messages: Mapping[str, int]
    waiting: str | None


def left_out_of_sessions(folder: str) -> list[LeftOutOfSession]:
    """Returns the sessions of which the hooks left something out; empty if there are none."""
    try:
        names = sorted(name for name in os.listdir(folder) if name.endswith(SUFFIX))
    except OSError:
        return []
    sessions = []
    for name in names:
        if record := _load(os.path.join(folder, name)):
            messages = sum((Counter(part) for part in record["parts"].values()), Counter[str]())
            sessions.append(
                LeftOutOfSession(str(record.get("transcript", name)), dict(messages), record.get("waiting"))
            )
    return sessions


def _load(place: str) -> dict[str, Any]:
    """The content of a session's file; empty if there is none, or it is broken."""
    try:
        with open(place, encoding="utf-8") as file:
            record = json.load(file)
    except (OSError, ValueError):
        return {}
    return record if isinstance(record, dict) and isinstance(record.get("parts"), dict) else {}

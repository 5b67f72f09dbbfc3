"""Recognises the kind of a file by its content, and limits how long reading it may take."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO, TypeVar

from openmemory.backup.format import TABLES
from openmemory.errors import OpenMemoryError
from openmemory.importers.foreign import ForeignFile, foreign_json, foreign_text, foreign_zip
from openmemory.uploads.spool import look_for_room

T = TypeVar("T")

_SQLITE = b"SQLite format 3\x00"
_ZIP = (b"PK\x03\x04", b"PK\x05\x06")
_START = 64 * 1024
MAX_ROW_BYTES = 64 * 1024 * 1024
"""Maximum number of bytes of a row that SQLite reads or makes."""
_LOOK_EVERY = 10_000
"""Rows that are read between two checks of the free disk space."""


class BadSource(OpenMemoryError):
    """The file cannot be imported. The message continues a sentence that begins with the name of the file."""

    code = "invalid_file"


class FileKind(StrEnum):
    """The kinds of files. The values are for people."""

    DATABASE = "a database of OpenMemory"
    ARCHIVE = "an archive of this service, or an export of OpenMemory"
    MEM0 = "memories of mem0 as JSON"


def kind_of(file: BinaryIO) -> FileKind:
    """Returns the kind of a file, which is left at its start.

    Raises:
        BadSource: it is of no kind that can be imported.
    """
    file.seek(0)
    start = file.read(_START)
    file.seek(0)
    if is_sqlite(start):
        return FileKind.DATABASE
    if is_zip(start):
        refuse_foreign(foreign_zip(file, TABLES))
        return FileKind.ARCHIVE
    text = start.removeprefix(b"\xef\xbb\xbf").lstrip()
    if is_json_lines(text):
        raise BadSource("is JSON Lines, which a command imports", hint="openmemory import FILE")
    refuse_foreign(foreign_json(start))
    if text.startswith((b"[", b"{")):
        return FileKind.MEM0
    foreign_file = foreign_text(start)
    requirement = "must be a database of OpenMemory (openmemory.db), a ZIP archive, or memories of mem0 as JSON"
    raise BadSource(
        requirement if foreign_file is None else f"{requirement}, not {foreign_file.name}",
        hint=None if foreign_file is None else foreign_file.remedy,
    )


def refuse_foreign(foreign_file: ForeignFile | None) -> None:
    """Refuses a file of another program.

    Raises:
        BadSource: it is one; the message names its kind, and the hint states what can be done.
    """
    if foreign_file is not None:
        raise BadSource(f"is {foreign_file.name}, which cannot be imported as it is", hint=foreign_file.remedy)


def is_sqlite(start: bytes) -> bool:
    """Returns True if a file that starts like this is a SQLite database."""
    return start.startswith(_SQLITE)


def is_zip(start: bytes) -> bool:
    """Returns True if a file that starts like this is a zip."""
    return start.startswith(_ZIP)


def is_json_lines(text: bytes) -> bool:
    """Returns True if a file that starts like this has a memory in its first line."""
    line = text.partition(b"\n")[0]
    try:
        first = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(first, dict) and "text" in first


class ReadingLimit:
    """Stops reading a file if that takes too long, fills the disk, or if the caller was cancelled."""

    def __init__(self, seconds: float, folder: Path) -> None:
        """`folder`: where the rows that were read are stored meanwhile."""
        self._seconds = seconds
        self._folder = folder
        self._end = 0.0
        self._rows = 0

    async def run(self, work: Callable[[], T]) -> T:
        """Runs `work`, which reads, in a thread. If the caller is cancelled, it ends before the files are gone.

        Raises:
            BadSource: it took too long, or SQLite cannot read the file or store its rows.
        """
        self._end = time.monotonic() + self._seconds
        task = asyncio.ensure_future(asyncio.to_thread(work))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            self._end = 0.0
            await asyncio.gather(task, return_exceptions=True)
            raise
        except sqlite3.Error as error:
            self.check()
            raise BadSource(f"cannot be read: {error}") from error

    def over(self) -> bool:
        """Returns True if the reading must end."""
        return time.monotonic() > self._end

    def check(self) -> None:
        """Called for every row.

        Raises:
            BadSource: reading took too long, or the caller was cancelled.
            Unavailable: the disk is nearly full.
        """
        if self.over():
            raise BadSource(f"took more than {self._seconds:,.0f} seconds to read")
        self._rows += 1
        if self._rows % _LOOK_EVERY == 0:
            look_for_room(self._folder)

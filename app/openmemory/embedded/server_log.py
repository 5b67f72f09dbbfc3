"""The server's log file, bounded in size: the present file and one former."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from openmemory.errors import SetupError

LARGEST = 4 * 1024 * 1024
"""Bytes of a log file that starts the next one."""


def open_log(path: Path) -> int:
    """A descriptor that appends to the log."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def bound(path: Path, largest: int = LARGEST) -> None:
    """Move the text to `….1` if it is too long; a running server goes on appending to the same, emptied file."""
    try:
        if path.stat().st_size <= largest:
            return
    except FileNotFoundError:
        return
    former = path.with_name(f"{path.name}.1")
    shutil.copyfile(path, former)
    former.chmod(0o600)
    os.truncate(path, 0)


def failure(path: Path, what: str) -> SetupError:
    """An error that says what failed, with the last lines of the log."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return SetupError(f"The built-in PostgreSQL {what}: {' | '.join(lines[-4:]) or 'it said nothing'} (log: {path})")

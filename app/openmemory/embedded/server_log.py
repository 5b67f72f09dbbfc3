"""The server's log file, bounded in size: the current file and the previous one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from openmemory.errors import SetupError

MAX_LOG_BYTES = 4 * 1024 * 1024
"""The size in bytes at which a log file is rotated."""


def open_log(path: Path) -> int:
    """Returns a file descriptor that appends to the log."""
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)


def bound(path: Path, largest: int = MAX_LOG_BYTES) -> None:
    """Copy the log to `….1` and empty it if it is too large. A running server continues to append to the same file."""
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
    """Returns an error that says what failed, with the last lines of the log."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - 4096))
        lines = file.read().decode(errors="replace").strip().splitlines()
    return SetupError(f"The built-in PostgreSQL {what}: {' | '.join(lines[-4:]) or 'it said nothing'} (log: {path})")

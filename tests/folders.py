"""Folders for the data of services under test."""

from __future__ import annotations

import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

import psutil

_IN_MEMORY = Path("/dev/shm")
_ROOM = 6 * 2**30
"""Bytes that the data folders of several workers may need at once, with room to spare."""


def new_folder(prefix: str = "om-") -> Path:
    """Make a folder whose path is short enough for unix sockets, for the caller to remove."""
    return Path(tempfile.mkdtemp(prefix=prefix, dir=_parent())).resolve()


@cache
def _parent() -> Path | None:
    """Returns a file system in memory if there is room, where no commit waits for a disk; else None."""
    if not _IN_MEMORY.is_dir() or os.statvfs(_IN_MEMORY).f_flag & os.ST_NOEXEC:  # programs may be copied there
        return None
    left = min(shutil.disk_usage(_IN_MEMORY).free, psutil.virtual_memory().available)
    return _IN_MEMORY if left > _ROOM else None

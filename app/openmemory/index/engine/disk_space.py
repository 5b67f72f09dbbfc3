"""Checks the free disk space before the engine writes."""

from __future__ import annotations

import shutil
from pathlib import Path

from openmemory.index.port import IndexUnavailable

RESERVE = 64 * 1024 * 1024
"""The bytes that must stay free. The engine writes through mappings of sparse files. The first page that does not fit
on the disk ends the process with SIGBUS, which cannot be caught, and again when the folder is next opened."""

COPIES = 4
"""The number of times the engine writes its input: log, storage, index data, and zeros for points without a second
vector."""


def check_room(folder: Path, writing: int = 0) -> None:
    """Checks the free space. To be called before every write of `writing` bytes, since others fill the disk too.

    Raises:
        IndexUnavailable: too little is free. Searches need no space and continue.
    """
    free = shutil.disk_usage(folder).free
    needed = RESERVE + COPIES * writing
    if free < needed:
        raise IndexUnavailable(
            f"No space left on device: {free >> 20} MB are free in {folder}, and {needed >> 20} MB are needed"
        )

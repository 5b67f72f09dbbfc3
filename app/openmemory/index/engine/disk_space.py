"""Whether the disk has room for what the engine is about to write."""

from __future__ import annotations

import shutil
from pathlib import Path

from openmemory.index.port import IndexUnavailable

RESERVE = 64 * 1024 * 1024
"""Bytes that must stay free. The engine writes through mappings of files with holes: the first page that the disk has
no room for ends the process with SIGBUS, which nobody can catch, and does so again when the folder is next opened."""

COPIES = 4
"""How often the engine writes what it is given: log, storage, what it indexes of it, and zeros where a point has no
second vector."""


def check_room(folder: Path, writing: int = 0) -> None:
    """Ask before every write of `writing` bytes; others fill the disk too.

    Raises:
        IndexUnavailable: too little is free. Searches need nothing and go on.
    """
    free = shutil.disk_usage(folder).free
    needed = RESERVE + COPIES * writing
    if free < needed:
        raise IndexUnavailable(
            f"No space left on device: {free >> 20} MB are free in {folder}, and {needed >> 20} MB are needed"
        )

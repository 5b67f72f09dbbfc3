"""The size of the built-in database's page cache, depending on the machine's memory."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""The files with a container's memory limit, by version of Linux's control groups."""

SHARE = 16
"""The page cache gets one part in this many of all memory, because other programs run here too."""

MIN_MEGABYTES, MAX_MEGABYTES = 128, 1024
"""Megabytes. With the maximum, lists of 100,000 memories in any order are served from memory. With 256 MB the texts
were evicted when other lists came between, and reading them again took as long as the list."""


def machine(limits: Iterable[Path] = LIMITS) -> int:
    """Returns the bytes of memory available to this process: the machine's, or the container's if that is less."""
    sizes = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in limits:
        try:
            size = limit.read_text(encoding="ascii").strip()
        except OSError:  # not Linux, or another version of control groups
            continue
        if size.isdecimal():  # otherwise "max"
            sizes.append(int(size))
    return min(sizes)


def shared_buffers(memory: int) -> str:
    """Returns PostgreSQL's `shared_buffers` for a machine with this many bytes of memory.

    Pages are allocated as needed: a small database uses little, whatever the setting.
    """
    return f"{min(max(memory // SHARE // 1024**2, MIN_MEGABYTES), MAX_MEGABYTES)}MB"

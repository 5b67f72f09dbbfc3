"""How much of the machine's memory the built-in database may keep pages in."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

LIMITS = (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"))
"""Where a container's own limit stands, by version of Linux's control groups."""

SHARE = 16
"""One part in so many of all memory is for pages of the database: other programs live here, too."""

LEAST, MOST = 128, 1024
"""Megabytes. With the most, lists of 100,000 memories by any order find all they look through in memory; with 256 MB
the texts had left it when other lists came between, and reading them again took as long as the list."""


def machine(limits: Iterable[Path] = LIMITS) -> int:
    """Bytes of memory that there are for this process: of the machine, or of the container if that has fewer."""
    found = [os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")]
    for limit in limits:
        try:
            said = limit.read_text(encoding="ascii").strip()
        except OSError:  # not Linux, or another version of them
            continue
        if said.isdecimal():  # else "max"
            found.append(int(said))
    return min(found)


def shared_buffers(memory: int) -> str:
    """PostgreSQL's setting of that name on a machine with so many bytes of memory.

    Pages are taken as they are needed: a small database takes little, whatever this says.
    """
    return f"{min(max(memory // SHARE // 1024**2, LEAST), MOST)}MB"

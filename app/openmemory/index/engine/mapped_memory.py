"""Releases memory that a process occupies only because it has read mapped files."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

_MADV_DONTNEED = 4
_SHARED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ..[-x]s \S+ \S+ \d+ +(/.*)")


def release_mapped(folder: Path) -> None:
    """Releases the resident pages of files below `folder` that this process has mapped shared.

    Their content stays in the kernel's page cache, including changed pages, and is mapped again on the next access, 16
    pages at a time. No such file may be unmapped meanwhile: its addresses could be reused for something else. Does
    nothing without `/proc`.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    below = f"{folder.resolve()}/"
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        match = _SHARED.fullmatch(line)
        if match is not None and match[3].startswith(below):
            start, end = int(match[1], 16), int(match[2], 16)
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)

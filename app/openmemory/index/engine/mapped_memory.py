"""Memory that a process holds only because it has read files through a mapping of them."""

from __future__ import annotations

import ctypes
import re
import sys
from pathlib import Path

_MADV_DONTNEED = 4
_SHARED = re.compile(r"([0-9a-f]+)-([0-9a-f]+) ..[-x]s \S+ \S+ \d+ +(/.*)")


def release_mapped(folder: Path) -> None:
    """Give back the resident pages of files below `folder` that this process has mapped shared.

    Their content stays in the kernel's page cache, changed pages included, and is mapped again where it is next
    touched, 16 pages at a time. Nothing may unmap such a file meanwhile: its addresses could have become those of
    something else. Does nothing where there is no `/proc`.
    """
    if sys.platform != "linux":
        return
    libc = ctypes.CDLL(None)
    below = f"{folder.resolve()}/"
    for line in Path("/proc/self/maps").read_text(encoding="utf-8", errors="surrogateescape").splitlines():
        found = _SHARED.fullmatch(line)
        if found is not None and found[3].startswith(below):
            start, end = int(found[1], 16), int(found[2], 16)
            libc.madvise(ctypes.c_void_p(start), ctypes.c_size_t(end - start), _MADV_DONTNEED)

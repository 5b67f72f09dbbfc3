"""Disks of a few megabytes that can be filled."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest


class Disk:
    """A file system of its own at `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @property
    def free(self) -> int:
        """Bytes."""
        return shutil.disk_usage(self.folder).free

    def fill(self, *, leave: int = 0) -> None:
        """Take all but `leave` bytes, also while others write."""
        with (self.folder / "filler").open("ab") as file:
            while (room := self.free - leave) > 0:
                with suppress(OSError):  # somebody else took some of it meanwhile
                    os.posix_fallocate(file.fileno(), file.seek(0, os.SEEK_END), room)

    def empty(self) -> None:
        """Give them back."""
        (self.folder / "filler").unlink()

    def grow(self, *, megabytes: int) -> None:
        """Make it as large as that."""
        remount = ["mount", "-o", f"remount,size={megabytes}m", str(self.folder)]
        subprocess.run(remount, check=True, capture_output=True)


@contextmanager
def disk(folder: Path, *, megabytes: int) -> Iterator[Disk]:
    """Mount one; skips the test where that is not permitted."""
    folder.mkdir(parents=True, exist_ok=True)
    command = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m,mode=0755", "tmpfs", str(folder)]
    try:
        mounted = subprocess.run(command, check=False, capture_output=True, text=True)
    except OSError as error:
        pytest.skip(f"a small disk cannot be mounted here: {error}")
    if mounted.returncode != 0:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield Disk(folder)
    finally:
        # At once, even if a failed test left files open.
        subprocess.run(["umount", "-l", str(folder)], check=True)

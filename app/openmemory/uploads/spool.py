"""Temporary files for archives and documents that come or go. They have no name, end with the process, and grow only
while the disk has room."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from openmemory.embedded.folder import temporary
from openmemory.errors import Unavailable

_RESERVE = 256 * 1024 * 1024
"""Bytes of disk space that are always left free."""
_LOOK_EVERY = 32 * 1024 * 1024


def look_for_room(folder: Path, size: int = 0) -> None:
    """Checks that `size` bytes can be written to the disk of a folder.

    Raises:
        Unavailable: the disk has too little space.
    """
    if shutil.disk_usage(folder).free < _RESERVE + size:
        raise no_room(f"less than {(_RESERVE + size) // 2**20:,} MB are left")


class Spool:
    """A temporary file that checks the free disk space while it is written. Its methods block: use them in threads."""

    def __init__(self, folder: Path) -> None:
        """
        Raises:
            Unavailable: the file cannot be created.
        """
        self._folder = folder
        try:
            file = tempfile.TemporaryFile(dir=temporary(folder))  # noqa: SIM115 - `close` closes it
            self.file = cast(BinaryIO, file)
        except OSError as error:
            raise no_room(error.strerror or "it cannot be written") from error
        self._unseen = _LOOK_EVERY

    def write(self, data: bytes) -> int:
        """Appends data.

        Raises:
            Unavailable: the disk is full, or nearly full.
        """
        self._unseen += len(data)
        try:
            if self._unseen >= _LOOK_EVERY:
                self._unseen = 0
                look_for_room(self._folder)
            return self.file.write(data)
        except OSError as error:
            raise no_room(error.strerror or "it cannot be written") from error

    def flush(self) -> None:
        """Flushes buffered data to the operating system."""
        self.file.flush()

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def close(self) -> None:
        """Closes the file and frees its disk space."""
        self.file.close()


def no_room(problem: str) -> Unavailable:
    """The error for a disk that is full."""
    return Unavailable(f"The disk has no space: {problem}", retry_after=60, code="no_room")

"""Files that archives lie in while they are made or taken in: without a name, gone with the process, and only as large
as the disk has room for."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import BinaryIO, cast

from openmemory.embedded.folder import temporary
from openmemory.errors import Unavailable

_RESERVE = 256 * 1024 * 1024
"""Bytes that are left to everybody else on the disk."""
_LOOK_EVERY = 32 * 1024 * 1024


def new_file(folder: Path) -> BinaryIO:
    """A new file in the data folder.

    Raises:
        Unavailable: it cannot be made.
    """
    try:
        return cast(BinaryIO, tempfile.TemporaryFile(dir=temporary(folder)))
    except OSError as error:
        raise _no_room(error.strerror or "it cannot be written") from error


def look_for_room(folder: Path, size: int = 0) -> None:
    """See that so many bytes can be written on the disk of a folder.

    Raises:
        Unavailable: they cannot.
    """
    if shutil.disk_usage(folder).free < _RESERVE + size:
        raise _no_room(f"less than {(_RESERVE + size) // 2**20:,} MB are left")


class Spool:
    """Such a file, written with an eye on the room that is left. To be used in threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.file = new_file(folder)
        self._unseen = _LOOK_EVERY

    def write(self, data: bytes) -> int:
        """Append.

        Raises:
            Unavailable: the disk is full, or nearly.
        """
        self._unseen += len(data)
        try:
            if self._unseen >= _LOOK_EVERY:
                self._unseen = 0
                look_for_room(self._folder)
            return self.file.write(data)
        except OSError as error:
            raise _no_room(error.strerror or "it cannot be written") from error

    def flush(self) -> None:
        """Hand everything to the system."""
        self.file.flush()

    def tell(self) -> int:
        return self.file.tell()

    def seek(self, offset: int, whence: int = 0) -> int:
        return self.file.seek(offset, whence)

    def close(self) -> None:
        """Give the room back."""
        self.file.close()


def _no_room(problem: str) -> Unavailable:
    return Unavailable(f"The disk has no room for an archive: {problem}", retry_after=60, code="no_room")

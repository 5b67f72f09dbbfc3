"""Where objects are. This module has the folder; see `openmemory.objects.s3` for the other place."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Protocol

from openmemory.errors import NotFound, Unavailable
from openmemory.resilience.atomic_files import replacing

CHUNK = 1024 * 1024
"""The number of bytes that are read at a time."""


class ObjectStore(Protocol):
    """Keeps encrypted objects under their keys. A key is two parts with a slash between them."""

    async def put(self, key: str, data: Iterator[bytes]) -> None:
        """Stores an object durably.

        Raises:
            Unavailable: the store does not answer, or is full.
        """
        ...

    def get(self, key: str) -> AsyncIterator[bytes]:
        """Yields an object.

        Raises:
            NotFound: there is none under this key.
            Unavailable: the store does not answer.
        """
        ...

    async def delete(self, key: str) -> None:
        """Deletes an object. Deleting it twice is fine.

        Raises:
            Unavailable: the store does not answer.
        """
        ...


class FolderObjects:
    """Objects as files in a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def put(self, key: str, data: Iterator[bytes]) -> None:
        """See `ObjectStore`. The file and its name are on the disk when this returns."""
        await asyncio.to_thread(self._put, self._folder / key, data)

    @staticmethod
    def _put(path: Path, data: Iterator[bytes]) -> None:
        try:
            # `parents` would give the upper one the usual mode.
            path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.parent.mkdir(mode=0o700, exist_ok=True)
            with replacing(path) as file:
                for chunk in data:
                    file.write(chunk)
            for folder in (path.parent, path.parent.parent):
                _flush(folder)
        except OSError as error:
            raise _away(error) from error

    async def get(self, key: str) -> AsyncIterator[bytes]:
        """See `ObjectStore`."""
        try:
            file = await asyncio.to_thread((self._folder / key).open, "rb")
        except FileNotFoundError:
            raise no_object() from None
        except OSError as error:
            raise _away(error) from error
        try:
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                yield chunk
        except OSError as error:
            raise _away(error) from error
        finally:
            file.close()

    async def delete(self, key: str) -> None:
        """See `ObjectStore`. The folder of a user goes with its last object."""
        await asyncio.to_thread(self._delete, self._folder / key)

    @staticmethod
    def _delete(path: Path) -> None:
        try:
            # A draft is left if the service was killed while it wrote.
            for file in (path, *path.parent.glob(f".{path.name}.*")):
                file.unlink(missing_ok=True)
            if path.parent.is_dir() and not any(path.parent.iterdir()):
                path.parent.rmdir()
        except OSError as error:
            if path.exists():
                raise _away(error) from error


def no_object() -> NotFound:
    """The error for an object that is not in the store."""
    return NotFound("The original of this document is not in the store of documents.", code="original_missing")


def _flush(folder: Path) -> None:
    """Make the names in a folder durable."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _away(error: OSError) -> Unavailable:
    problem = f"The store of documents cannot be used: {error.strerror or error}"
    return Unavailable(problem, retry_after=60, code="objects_unavailable")

"""Opening a zip that somebody sent: nothing is written anywhere, and nothing is read that is too much.

`zipfile` and `gzip` say what is broken; here stands what they would accept.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, BinaryIO, cast

from app.backup.format import (
    LARGEST_DIRECTORY,
    MEMBERS,
    MOST_MEMBERS,
    RATIO,
    RATIO_FROM,
    TABLES,
    BadArchive,
    not_a_zip,
    too_much,
)

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LOCAL_HEADER = 30
_ENCRYPTED = 0x1
_BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError,
    NotImplementedError, UnicodeDecodeError, ValueError, OverflowError, OSError,
)  # fmt: skip
"""What the standard library raises about a file that is no zip, or a broken one."""


class Container:
    """A zip whose directory was found in order. Its members are read as streams, under one count of bytes."""

    def __init__(self, file: BinaryIO, *, unpacked: int) -> None:
        """`unpacked`: how many bytes may come of the members that are read, all together.

        Raises:
            BadArchive: it is no zip, or one that is not taken.
        """
        self._left = unpacked
        self._limit = unpacked
        self.read = 0
        """Compressed bytes read so far of the members."""
        with _in_words("the file"):
            self._zip = zipfile.ZipFile(cast(BinaryIO, _Frugal(file)))
            entries = self._zip.infolist()
        _look_at(entries, self._zip.start_dir)
        self._members = _ours(entries)
        self.size = sum(member.compress_size for member in self._members.values())
        """Compressed bytes of the members that are read."""

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @contextmanager
    def open(self, name: str) -> Iterator[Callable[[int], bytes]]:
        """A function that reads some of a member, uncompressed; b"" at its end.

        Raises:
            BadArchive: the member is broken, or there is too much of it.
        """
        member = self._members[name]
        before = self.read
        came = 0
        with _in_words(name), self._zip.open(member) as raw:
            counted = _Counted(raw)
            stream = gzip.GzipFile(fileobj=counted) if name.endswith(".gz") else counted

            def some(size: int) -> bytes:
                nonlocal came
                with _in_words(name):
                    data = stream.read(size)
                came += len(data)
                self._left -= len(data)
                # How much was read of a member that is deflated can be told from its share alone.
                self.read = before + int(member.compress_size * min(1.0, counted.count / max(1, member.file_size)))
                if self._left < 0:
                    raise too_much(f"it unpacks to more than {self._limit:,} bytes (16 times limits.backup)")
                if came > RATIO_FROM and came > RATIO * max(1, self.read - before):
                    raise too_much(f"{name} unpacks to more than {RATIO} times its size")
                return data

            yield some
        self.read = before + member.compress_size


class _Frugal(io.RawIOBase):
    """A file of which never much is read at once: what a zip says of the size of its directory is not believed."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        most = LARGEST_DIRECTORY + 1 if size is None or size < 0 else size
        data = self._file.read(min(most, LARGEST_DIRECTORY + 1))
        if len(data) > LARGEST_DIRECTORY:
            raise too_much(f"its directory has more than {LARGEST_DIRECTORY:,} bytes")
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class _Counted:
    """A stream that counts what is read of it."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self.count = 0

    def read(self, size: int = -1) -> bytes:
        data = self._stream.read(size)
        self.count += len(data)
        return data

    def seek(self, *_: int) -> int:
        raise io.UnsupportedOperation("this is read once")


def _look_at(entries: list[zipfile.ZipInfo], directory: int) -> None:
    """Refuse what is no ordinary archive."""
    if len(entries) > MOST_MEMBERS:
        raise too_much(f"it has {len(entries):,} members; at most {MOST_MEMBERS} are taken")
    seen: set[str] = set()
    for entry in entries:
        name = entry.orig_filename
        shown = name.encode("ascii", "backslashreplace").decode()[:100]
        parts = name.replace("\\", "/").split("/")
        if "\x00" in name or "\\" in name or name.startswith("/") or ".." in parts or parts[0].endswith(":"):
            raise not_a_zip(f"the member {shown!r} has a path that leads out of the archive")
        if name in seen:
            raise not_a_zip(f"the member {shown!r} is there twice")
        seen.add(name)
        if entry.flag_bits & _ENCRYPTED:
            raise not_a_zip(f"the member {shown!r} is encrypted; export it without a password")
        if entry.compress_type not in _METHODS:
            raise not_a_zip(f"the member {shown!r} is compressed in a way that is not read; use deflate")
    ordered = sorted(entries, key=lambda entry: entry.header_offset)
    if ordered and ordered[0].header_offset != 0:
        raise not_a_zip("there is something before its first member")
    for entry, following in zip(ordered, [each.header_offset for each in ordered[1:]] + [directory], strict=True):
        if entry.header_offset + _LOCAL_HEADER + entry.compress_size > following:
            raise not_a_zip("its members overlap")


def _ours(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The members that are read, by base name."""
    found: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.rpartition("/")[2]
        if name not in MEMBERS:
            continue
        if name in found:
            raise not_a_zip(f"{name} is there in two folders")
        found[name] = entry
    if TABLES not in found:
        raise not_a_zip(f"{TABLES} is missing")
    return found


@contextmanager
def _in_words(what: str) -> Iterator[None]:
    try:
        yield
    except BadArchive:
        raise
    except _BROKEN as error:
        words = str(error).strip().rstrip(".") or type(error).__name__
        raise not_a_zip(f"{what} is broken: {words[:200]}") from error

"""Opens an uploaded zip safely: nothing is extracted to disk, and all sizes are limited. Writes members of new ones.

`zipfile` and `gzip` report broken files; this module rejects dangerous ones that they would accept.
"""

from __future__ import annotations

import gzip
import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import BinaryIO, cast

from openmemory.backup.format import (
    MAX_DIRECTORY_BYTES,
    MAX_MEMBERS,
    RATIO,
    RATIO_FROM,
    TABLES,
    BadArchive,
    not_a_zip,
    too_much,
)
from openmemory.schema.archives import MEMBERS

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_LOCAL_HEADER = 30
_ENCRYPTED = 0x1
_GZIP = b"\x1f\x8b"
_MAX_STREAMS = 10_000
"""Maximum number of streams in a gzip file. Most writers produce one; writers that compress in blocks, thousands."""
_PIECE = 64 * 1024
_BROKEN = (
    zipfile.BadZipFile, zipfile.LargeZipFile, gzip.BadGzipFile, zlib.error, EOFError, RuntimeError,
    NotImplementedError, UnicodeDecodeError, ValueError, OverflowError, OSError,
)  # fmt: skip
"""Exceptions that the standard library raises for a file that is not a zip or is broken."""


class Container:
    """A zip with a valid directory. Its members are read as streams that share one byte limit."""

    def __init__(self, file: BinaryIO, *, unpacked: int) -> None:
        """`unpacked`: maximum total number of uncompressed bytes of the members that are read.

        Raises:
            BadArchive: the file is not a zip, or is one that is not accepted.
        """
        self._left = unpacked
        self._limit = unpacked
        self.read = 0
        """Compressed bytes of the members read so far."""
        with _translate_errors("the file"):
            self._zip = zipfile.ZipFile(cast(BinaryIO, Frugal(file)))
            entries = self._zip.infolist()
        _check_entries(entries, self._zip.start_dir)
        self._members = _archive_members(entries)
        self.size = sum(member.compress_size for member in self._members.values())
        """Compressed bytes of the members that are read."""

    def __contains__(self, name: str) -> bool:
        return name in self._members

    @contextmanager
    def open(self, name: str) -> Iterator[Callable[[int], bytes]]:
        """A function that reads part of a member, uncompressed; b"" at its end.

        Raises:
            BadArchive: the member is broken or too large.
        """
        member = self._members[name]
        before = self.read
        with _translate_errors(name), self._zip.open(member) as raw:

            def limit_reads(read: Callable[[int], bytes]) -> Callable[[int], bytes]:
                total = 0

                def some(size: int) -> bytes:
                    nonlocal total
                    with _translate_errors(name):
                        data = read(size)
                    total += len(data)
                    self._left -= len(data)
                    # The compressed bytes read are estimated from the share of the member that was inflated.
                    share = min(1.0, raw.tell() / max(1, member.file_size))
                    self.read = before + int(member.compress_size * share)
                    if self._left < 0:
                        raise too_much(f"it unpacks to more than {self._limit:,} bytes (16 times limits.backup)")
                    if total > RATIO_FROM and total > RATIO * max(1, self.read - before):
                        raise too_much(f"{name} unpacks to more than {RATIO} times its size")
                    return data

                return some

            plain = limit_reads(raw.read)
            yield limit_reads(_Gunzipped(plain).read) if name.endswith(".gz") else plain
        self.read = before + member.compress_size


@contextmanager
def lines_member(archive: zipfile.ZipFile, name: str, *, level: int = 6) -> Iterator[gzip.GzipFile]:
    """Opens a gzip-compressed member of a new archive for writing. The zip stores it without further compression."""
    # The default date is 1980, the first year that a zip supports.
    info = zipfile.ZipInfo(name)
    info.external_attr = 0o600 << 16
    with (
        archive.open(info, "w", force_zip64=True) as member,
        gzip.GzipFile(filename="", mode="wb", compresslevel=level, fileobj=member, mtime=0) as lines,
    ):
        yield lines


class Frugal(io.RawIOBase):
    """A file that limits every read, because the directory size that a zip declares cannot be trusted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def read(self, size: int = -1, /) -> bytes:
        most = MAX_DIRECTORY_BYTES + 1 if size is None or size < 0 else size
        data = self._file.read(min(most, MAX_DIRECTORY_BYTES + 1))
        if len(data) > MAX_DIRECTORY_BYTES:
            raise too_much(f"its directory has more than {MAX_DIRECTORY_BYTES:,} bytes")
        return data

    def seek(self, offset: int, whence: int = 0, /) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


class _Gunzipped:
    """The contents of a gzip file. The function `read` also counts skipped bytes, such as a file name in the header."""

    def __init__(self, read: Callable[[int], bytes]) -> None:
        self._read = read
        self._pending = b""
        self._stream: zlib._Decompress | None = None
        self._streams = 0

    def read(self, size: int) -> bytes:
        """At most `size` bytes; b"" at the end."""
        while True:
            if self._stream is None and not self._next():
                return b""
            assert self._stream is not None
            if not self._pending:
                self._pending = self._read(_PIECE)
            ended = not self._pending
            try:
                data = self._stream.decompress(self._pending, size)
            except zlib.error as error:
                raise gzip.BadGzipFile("CRC check failed" if "data check" in str(error) else str(error)) from None
            self._pending = self._stream.unconsumed_tail
            if self._stream.eof:
                self._pending, self._stream = self._stream.unused_data, None
            elif ended and not data:
                raise EOFError("Compressed file ended before the end-of-stream marker was reached")
            if data:
                return data

    def _next(self) -> bool:
        """Starts the next stream; returns False at the end. Streams may follow one another, with zeros between them."""
        self._pending = self._pending.lstrip(b"\0") if self._streams else self._pending
        while len(self._pending) < len(_GZIP):
            if not (data := self._read(_PIECE)):
                if self._pending or not self._streams:
                    raise gzip.BadGzipFile("Not a gzipped file")
                return False
            self._pending += data
            self._pending = self._pending.lstrip(b"\0") if self._streams else self._pending
        if not self._pending.startswith(_GZIP):
            raise gzip.BadGzipFile("Not a gzipped file")
        self._streams += 1
        if self._streams > _MAX_STREAMS:
            raise too_much(f"a gzip member has more than {_MAX_STREAMS:,} streams")
        self._stream = zlib.decompressobj(zlib.MAX_WBITS | 16)
        return True


def _check_entries(entries: list[zipfile.ZipInfo], directory: int) -> None:
    """Rejects a zip that is not an ordinary archive."""
    if len(entries) > MAX_MEMBERS:
        raise too_much(f"it has {len(entries):,} members; at most {MAX_MEMBERS} are taken")
    names: set[str] = set()
    for entry in entries:
        name = entry.orig_filename
        printable = name.encode("ascii", "backslashreplace").decode()[:100]
        parts = name.replace("\\", "/").split("/")
        if "\x00" in name or "\\" in name or name.startswith("/") or ".." in parts or parts[0].endswith(":"):
            raise not_a_zip(f"the member {printable!r} has a path outside of the archive")
        if name in names:
            raise not_a_zip(f"the member {printable!r} occurs twice")
        names.add(name)
        if entry.flag_bits & _ENCRYPTED:
            raise not_a_zip(f"the member {printable!r} is encrypted; export it without a password")
        if entry.compress_type not in _METHODS:
            raise not_a_zip(f"the member {printable!r} uses an unsupported compression; use deflate")
    in_order = sorted(entries, key=lambda entry: entry.header_offset)
    if in_order and in_order[0].header_offset != 0:
        raise not_a_zip("it must begin with its first member")
    for entry, following in zip(in_order, [each.header_offset for each in in_order[1:]] + [directory], strict=True):
        if entry.header_offset + _LOCAL_HEADER + entry.compress_size > following:
            raise not_a_zip("its members overlap")


def _archive_members(entries: list[zipfile.ZipInfo]) -> dict[str, zipfile.ZipInfo]:
    """The members that are read, by base name."""
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in entries:
        name = entry.filename.rpartition("/")[2]
        if name != TABLES and name not in MEMBERS:
            continue
        if name in members:
            raise not_a_zip(f"{name} occurs in two folders")
        members[name] = entry
    if TABLES not in members:
        raise not_a_zip(f"{TABLES} is missing")
    return members


@contextmanager
def _translate_errors(what: str) -> Iterator[None]:
    try:
        yield
    except BadArchive:
        raise
    except _BROKEN as error:
        words = str(error).strip().rstrip(".") or type(error).__name__
        raise not_a_zip(f"{what} is broken: {words[:200]}") from error

"""What an archive's container passes over is bounded like what it holds."""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Callable

import pytest

from openmemory.backup import json_stream
from openmemory.backup.container import Container
from openmemory.backup.format import BadArchive

MIB = 2**20


def never_ending_header(size: int) -> list[bytes]:
    return [b"\x1f\x8b\x08\x08" + bytes(5) + b"\xff", *[b"a" * MIB] * (size // MIB), b"\0"]


def empty_members(size: int) -> list[bytes]:
    empty = gzip.compress(b"", mtime=0)
    return [empty * (MIB // len(empty))] * (size // MIB)


def archive_of(pieces: list[bytes], method: int = zipfile.ZIP_DEFLATED) -> io.BytesIO:
    """An archive whose revisions are these bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", method, compresslevel=9) as file:
        file.writestr("memories.json", "{}")
        with file.open("revisions.jsonl.gz", "w", force_zip64=True) as member:
            for piece in pieces:
                member.write(piece)
    return buffer


def revisions(buffer: io.BytesIO, unpacked: int = 100 * MIB) -> bytes:
    found = b""
    with Container(buffer, unpacked=unpacked).open("revisions.jsonl.gz") as read:
        while data := read(1_000):
            assert len(data) <= 1_000
            found += data
    return found


@pytest.mark.parametrize("pieces", [never_ending_header, empty_members])
@pytest.mark.parametrize("unpacked", [MIB, 1024 * MIB])
def test_what_gzip_passes_over_counts_as_unpacked_too(pieces: Callable[[int], list[bytes]], unpacked: int) -> None:
    buffer = archive_of(pieces(16 * MIB))
    assert len(buffer.getvalue()) < 64 * 1024
    container = Container(buffer, unpacked=unpacked)
    with pytest.raises(BadArchive) as refused, container.open("revisions.jsonl.gz") as read:
        list(json_stream.lines(read, "revisions.jsonl.gz"))
    assert refused.value.code == "archive_too_large"


@pytest.mark.parametrize(
    "data",
    [
        gzip.compress(b"one\n" * 9_999), gzip.compress(b"one\n") + gzip.compress(b"") + gzip.compress(b"two"),
        gzip.compress(b"one") + bytes(100_000), gzip.compress(b""),
        gzip.compress(b"one") + bytes(3) + gzip.compress(b"two"),
        gzip.compress(bytes(range(256)) * 1_000, compresslevel=0),
    ],
    ids=["one", "three", "zeros at the end", "empty", "zeros between", "stored"],
)  # fmt: skip
def test_a_gzip_file_is_read_as_gzip_reads_it(data: bytes) -> None:
    assert revisions(archive_of([data], zipfile.ZIP_STORED)) == gzip.decompress(data)


@pytest.mark.parametrize("end", range(1, 24))
def test_a_gzip_file_that_ends_too_soon_is_refused(end: int) -> None:
    with pytest.raises(BadArchive):
        revisions(archive_of([gzip.compress(b"something")[:-end]], zipfile.ZIP_STORED))


@pytest.mark.parametrize("rest", [b"x", b"\x1f", b"\x1f\x8b", b"\x1f\x8bgarbage that is none", b"\0\0{}"])
def test_what_follows_a_gzip_file_and_is_none_is_refused(rest: bytes) -> None:
    with pytest.raises(BadArchive):
        revisions(archive_of([gzip.compress(b"something") + rest], zipfile.ZIP_STORED))

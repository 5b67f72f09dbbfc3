"""The archive format and its limits. `schema.archives` has the lists.

Version "1" is OpenMemory's own: `memories.json` and `memories.jsonl.gz`. Old readers ignore the members that we add.
Values that an old archive lacks have defaults.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openmemory.config.settings import LimitSettings
from openmemory.errors import OpenMemoryError

VERSION = "1"
"""The version that is written, and the only one that is read."""

TABLES = "memories.json"
"""The member that is required. The others are lists of their own."""

MAX_MEMBERS = 64
MAX_DIRECTORY_BYTES = 1024 * 1024
"""Maximum size in bytes of a zip's central directory, which is held in memory."""

UNPACKED = 16
"""Maximum unpacked size of an archive, as a multiple of `limits.backup`."""

RATIO = 200
"""Maximum compression ratio of a member beyond `RATIO_FROM` bytes. Memories compress to about a tenth."""
RATIO_FROM = 16 * 1024 * 1024

MAX_RECORD_BYTES = 8 * 1024 * 1024


class StreamLimits(NamedTuple):
    """Limits of one list entry or one line. No more than that is held in memory at once."""

    bytes: int = MAX_RECORD_BYTES
    values: int = 200_000
    """JSON values, including nested ones."""


DEFAULT_LIMITS = StreamLimits()
"""The default limits, used without settings."""


def most_of(limits: LimitSettings) -> StreamLimits:
    """The limits from the settings. Everything that can be stored fits, even in its longest JSON encoding."""
    # A revision holds two texts, a step of a capture three, a conversation four, in UTF-8 as PostgreSQL writes it. A
    # character takes at most twelve bytes, or six in UTF-8; a byte of metadata takes six.
    return StreamLimits(
        max(MAX_RECORD_BYTES, 2 * 12 * max(limits.text, limits.value + 1024) + 6 * limits.metadata + 1024 * 1024),
        limits.json_values,
    )


MAX_DEPTH = 64
"""Maximum nesting depth within one entry."""


class BadArchive(OpenMemoryError):
    """The file is not a valid archive, or is inconsistent. The message states what is wrong and where."""

    code = "invalid_archive"


def not_a_zip(problem: str) -> BadArchive:
    """The error for a file that cannot be unpacked. Its first words are the same as in OpenMemory."""
    return BadArchive(f"Invalid zip file: {problem}")


def too_much(problem: str) -> BadArchive:
    """The error for an archive that exceeds a size limit."""
    return BadArchive(f"Invalid zip file: {problem}", code="archive_too_large")


def malformed(place: str, problem: str) -> BadArchive:
    """The error for invalid content. `place` is, for example, `memories[17].created_at`."""
    return BadArchive(f"{place}: {problem}")


def kind_of(value: Any) -> str:
    """The JSON type name of a value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

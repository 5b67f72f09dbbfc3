"""The archive: what its members are called, what stands in them, and what is too much.

Version "1" is OpenMemory's own: `memories.json` and `memories.jsonl.gz`. What we write besides, old readers pass over;
what an old archive lacks has a default.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from openmemory.config.settings import Limits
from openmemory.errors import OpenMemoryError
from openmemory.memories.models import LAST_REVISION

VERSION = "1"
"""The version that is written, and the only one that is read."""

TABLES = "memories.json"
MEMORIES = "memories.jsonl.gz"
REVISIONS = "revisions.jsonl.gz"
ACCESSES = "access_logs.jsonl.gz"
CAPTURES = "captures.jsonl.gz"
STEPS = "capture_steps.jsonl.gz"
VECTORS = "vectors.jsonl.gz"
MEMBERS = (TABLES, MEMORIES, REVISIONS, ACCESSES, CAPTURES, STEPS, VECTORS)
"""The members that are read, in this order. Only the first must be there."""

MOST_MEMBERS = 64
LARGEST_DIRECTORY = 1024 * 1024
"""Bytes of a zip's central directory, which is held in memory."""

UNPACKED = 16
"""How many times `limits.backup` an archive may have when it is unpacked."""

RATIO = 200
"""How many bytes may come of one, once more than `RATIO_FROM` came of a member. Memories shrink to a tenth or so."""
RATIO_FROM = 16 * 1024 * 1024

LARGEST_RECORD = 8 * 1024 * 1024


class Most(NamedTuple):
    """The most that one entry of a list or one line may have, which is all of an archive that is held in memory."""

    bytes: int = LARGEST_RECORD
    values: int = 200_000
    """JSON values, nested ones too."""


MOST = Most()
"""Where no settings say it."""


def most_of(limits: Limits) -> Most:
    """What the settings allow: whatever may be stored may come in, in the longest way in which JSON can say it."""
    # A revision holds two texts, a step of a capture three, a conversation four, in UTF-8 as PostgreSQL writes it; a
    # character takes twelve bytes at most, or six in UTF-8, a byte of metadata six.
    return Most(max(LARGEST_RECORD, 2 * 12 * limits.text + 6 * limits.metadata + 1024 * 1024), limits.json_values)


DEEPEST = 64
"""Levels of brackets within one entry."""

MOST_RECORDS = {
    "apps": 10_000, "categories": 100_000, "memories": 2_000_000, "memory_categories": 20_000_000,
    "status_history": 20_000_000, "access_controls": 100_000, "archive_policies": 10_000, REVISIONS: 20_000_000,
    ACCESSES: 20_000_000, CAPTURES: 2_000_000, STEPS: 20_000_000, VECTORS: 4_000_000,
}  # fmt: skip
"""Entries that a list, or lines that a member, may have."""

MOST_REVISIONS = LAST_REVISION
"""The highest number that a revision may have in an archive: what we count up to, or we would refuse what we wrote."""


class BadArchive(OpenMemoryError):
    """What was sent is no archive of ours, or one that contradicts itself. The message says what and where."""

    code = "invalid_archive"


def not_a_zip(problem: str) -> BadArchive:
    """The error for a file that cannot be unpacked; the first words are those of OpenMemory."""
    return BadArchive(f"Invalid zip file: {problem}")


def too_much(problem: str) -> BadArchive:
    """The error for an archive that unpacks to more than is taken."""
    return BadArchive(f"Invalid zip file: {problem}", code="archive_too_large")


def malformed(place: str, problem: str, hint: str | None = None) -> BadArchive:
    """The error for something in the archive that cannot be; `place` is such as `memories[17].created_at`."""
    return BadArchive(f"{place}: {problem}", hint=hint)


def kind_of(value: Any) -> str:
    """What JSON calls a value."""
    names = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", type(None): "null"}
    return names.get(type(value), "a number")

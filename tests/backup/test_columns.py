"""Every column of a memory is in the archive, or is listed here as derived."""

from __future__ import annotations

from openmemory.backup.sections import SECTIONS
from openmemory.memories.models import Memory
from openmemory.memories.restore.tables import COMPUTED, COPIED, OWN_RULE, TABLES

DERIVED = {"user_id", "words", "word_count", "folded", "text_app_id", "metadata_app_id"}
"""The importing user, what PostgreSQL derives from `content`, and the apps of the newest revisions."""


def test_an_import_writes_every_column():
    archived = [*COPIED, *OWN_RULE]
    assert len(archived) == len(set(archived))
    assert {column.split()[0] for column in TABLES["incoming_memories"].split(",")} == {
        *archived,
        "place",
        "categories",
    }
    assert set(archived) == {column.name for column in Memory.__table__.columns} - DERIVED


def test_an_export_reads_every_column_that_an_import_copies():
    exported = {*COPIED, *OWN_RULE} - {*COMPUTED}
    assert [name for name in exported if f"'{name}', m.{name}" not in SECTIONS["memories"]] == []

"""Every column of a memory is in the archive, or is listed here as derived."""

from __future__ import annotations

from sqlalchemy.dialects import postgresql

from openmemory.backup.sections import SECTIONS
from openmemory.memories.fields import COLUMNS, Archived
from openmemory.memories.models import Memory

DERIVED = {"user_id", "words", "word_count", "folded", "text_app_id", "metadata_app_id"}
"""The importing user, what PostgreSQL derives from `content`, and the apps of the newest revisions."""


def test_an_import_writes_every_column():
    names = [one.name for one in COLUMNS]
    assert len(names) == len(set(names))
    assert set(names) == {column.name for column in Memory.__table__.columns} - DERIVED


def test_the_types_are_those_of_the_table():
    columns = Memory.__table__.columns
    shown = {one.name: columns[one.name].type.compile(postgresql.dialect()).lower() for one in COLUMNS}
    spelled = {"timestamp with time zone": "timestamptz", "float": "double precision", "varchar": "text"}
    assert {name: spelled.get(type_, type_) for name, type_ in shown.items()} == {one.name: one.type for one in COLUMNS}


def test_an_export_reads_every_column_that_an_import_copies():
    exported = [one.name for one in COLUMNS if one.archived is not Archived.COMPUTED]
    assert [name for name in exported if f"'{name}', m.{name}" not in SECTIONS["memories"]] == []

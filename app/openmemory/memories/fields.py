"""The fields of memories, one row for each: what is added, sorted, filtered and archived follows from it.

    names_of(COPIED, "i")  # "i.content, i.metadata, ..."

A new column is a row here, an attribute of `models.Memory` and a migration. Archives hold it then.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Any


class Archived(Enum):
    """Treatments of a column by the import of archives."""

    CONTENT = "content"
    """It is copied. If it changes, there is a new revision."""
    STAMP = "stamp"
    """It is a time that is copied."""
    COMPUTED = "computed"
    """It is computed from the text when the archive is read, and then copied. No archive contains it."""
    COPIED = "copied"
    """It is copied."""
    RULED = "ruled"
    """It has a rule of its own in `restore.planning` and `restore.writing`."""


@dataclass(frozen=True, slots=True)
class MemoryField:
    """A field of memories: a column, or what other tables hold about a memory.

    `added`: the row of a new memory contains it. `sortable`: the names by which lists can be sorted by it.
    `filterable`: conditions of a search can test it, and its type decides the operators. `missing`: what stands for it
    in an archive that lacks it, as `schema.description` explains.
    """

    name: str
    type: str
    """As PostgreSQL spells it."""
    archived: Archived | None
    """None: it is no column of memories."""
    added: bool = False
    sortable: tuple[str, ...] = ()
    filterable: bool = False
    missing: Any = None


_CONTENT, _STAMP, _COMPUTED, _COPIED, _RULED = Archived

FIELDS = (
    MemoryField("id", "uuid", _RULED, added=True, sortable=("id",), missing=...),
    MemoryField("content", "text", _CONTENT, added=True, sortable=("memory", "content"), missing=...),
    MemoryField("metadata", "jsonb", _CONTENT, added=True),
    MemoryField("state", "memory_state", _RULED, sortable=("state",), missing="active"),
    MemoryField("namespace", "text", _CONTENT, added=True, sortable=("namespace",), filterable=True, missing="default"),
    MemoryField("app", "text", None, filterable=True),
    MemoryField("app_id", "uuid", _RULED, added=True, sortable=("app_id",), filterable=True),
    MemoryField("category", "text", None, filterable=True),
    MemoryField("category_id", "uuid", None, filterable=True),
    MemoryField("kind", "text", _CONTENT, added=True, sortable=("kind",), filterable=True, missing="memory"),
    MemoryField("thread_id", "text", _CONTENT, added=True, filterable=True),
    MemoryField("key", "text", _CONTENT, added=True, filterable=True),
    MemoryField("importance", "double precision", _CONTENT, added=True, sortable=("importance",), filterable=True),
    MemoryField(
        "created_at", "timestamptz", _STAMP, added=True, sortable=("created_at",), filterable=True, missing="now",
    ),
    MemoryField("updated_at", "timestamptz", _STAMP, sortable=("updated_at",), filterable=True, missing="created_at"),
    MemoryField("archived_at", "timestamptz", _RULED, sortable=("archived_at",)),
    MemoryField("deleted_at", "timestamptz", _STAMP, sortable=("deleted_at",)),
    MemoryField("expires_at", "timestamptz", _CONTENT, added=True, sortable=("expires_at",)),
    MemoryField("valid_from", "timestamptz", _CONTENT, added=True),
    MemoryField("valid_until", "timestamptz", _CONTENT, added=True),
    MemoryField("superseded_by", "uuid", _RULED),
    MemoryField("revision", "integer", _RULED, missing=1),
    MemoryField("hash", "text", _COMPUTED, added=True),
    MemoryField("labels", "text[]", _COMPUTED, added=True),
    MemoryField("text_by_user", "boolean", _COPIED, missing=False),
)  # fmt: skip
"""In the order in which the import of archives copies them, and in which errors list them."""

COLUMNS = tuple(one for one in FIELDS if one.archived is not None)
ADDED = tuple(one for one in COLUMNS if one.added)
COPIED = tuple(one for one in COLUMNS if one.archived is not Archived.RULED)


def archived_as(treatment: Archived) -> tuple[MemoryField, ...]:
    """Returns the columns with this treatment."""
    return tuple(one for one in COLUMNS if one.archived is treatment)


def names_of(columns: Iterable[MemoryField], table: str = "") -> str:
    """Returns the names for a statement, as columns of this table."""
    return ", ".join(f"{table}.{one.name}" if table else one.name for one in columns)


def typed(columns: Iterable[MemoryField]) -> str:
    """Returns the names with their types, as a definition of a table has them."""
    return ", ".join(f"{one.name} {one.type}" for one in columns)

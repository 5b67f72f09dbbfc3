"""Describes the tables of the schema and the lists of an archive. `schema.registry` and `schema.archives` hold them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal


@dataclass(frozen=True, slots=True)
class ArchiveColumn:
    """A field of the records of a list, a column of the table that an import loads them into, or mostly both.

    `type`: as PostgreSQL spells it. `missing`: the value that stands for a missing one; `...`: an archive without it is
    refused. For a time it is `now`, the time of the import, or the name of another column. `allowed`: the strings that
    it may be, or the lowest and the highest number. `checked`: it must be a valid name, or valid metadata. `sql`: what
    an export writes; empty: the column of this name; None: nothing, because the import computes it. `loaded`: an import
    loads it, rather than only checking its type.
    """

    name: str
    type: str
    missing: Any = None
    allowed: tuple[Any, ...] = ()
    checked: Literal["", "name", "metadata"] = ""
    sql: str | None = ""
    loaded: bool = True


@dataclass(frozen=True, slots=True)
class ArchiveList:
    """A list of `memories.json`, or a member of lines.

    `alias`: the table in the query. `rows`: the SQL after it, or the whole query if there is no alias. `more`: what the
    query returns after the JSON. `item`: what reports call a record. `most`: the maximum number of records. A list
    without columns is not read.

    `key`: what no two records have in common; the first of it names a record in reports. `field`: what messages call
    it. `repeated`: what is done with an archive that has it twice; `refused soon`: if both are near to each other.
    `parent`: the column with the id of the record that it belongs to, the list of that, and what a report says if it is
    missing.
    """

    name: str
    table: str
    alias: str
    item: str
    most: int
    rows: str
    columns: tuple[ArchiveColumn, ...] = ()
    more: str = ""
    key: tuple[str, ...] = ("id",)
    field: str = "id"
    repeated: Literal["refused", "refused soon", "ignored"] = "refused"
    parent: tuple[str, str, str] | None = None

    @property
    def staging(self) -> str:
        """The temporary table that an import loads it into."""
        return f"incoming_{self.name.removesuffix('.jsonl.gz')}"

    @property
    def loaded(self) -> tuple[tuple[str, str], ...]:
        """The columns of that table with their types, in the order in which they are copied. `place`: the number of a
        record in its list."""
        place = (("place", "integer"),) if self.repeated == "refused" else ()
        return place + tuple((one.name, one.type) for one in self.columns if one.loaded)

    @property
    def query(self) -> str:
        """The query of an export. Its first column is the JSON of a record."""
        if not self.alias:
            return self.rows
        written = (one for one in self.columns if one.sql is not None)
        pairs = ", ".join(f"'{one.name}', {one.sql or f'{self.alias}.{one.name}'}" for one in written)
        json = f"CAST(json_build_object({pairs}) AS text)"
        return f"SELECT {json}{self.more} FROM {self.table} AS {self.alias} {self.rows}"  # noqa: S608 - constants


@dataclass(frozen=True, slots=True)
class RegisteredTable:
    """A table of the schema, and how the rows of a user are erased.

    `erased`: with the rows of users, memories or embeddings that they refer to, at least by others; by a statement; or
    they are kept. `erasure`: the function with that statement, or why they are kept.

    Archives, bundles of projects and imports from other programs hold it, unless there is a reason: `unarchived`, which
    counts for all three, `unbundled`, `unimported`. `omitted`: the columns that no archive holds, by the reason.
    """

    name: str
    erased: Literal["users", "memories", "embeddings", "statement", "kept"]
    erasure: str = ""
    unarchived: str = ""
    unbundled: str = ""
    unimported: str = ""
    omitted: Mapping[str, str] = field(default_factory=dict)

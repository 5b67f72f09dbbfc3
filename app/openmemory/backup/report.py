"""The report of an import: how much of each kind was imported, and what was left out and why."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, Field

from openmemory.errors import Invalid

Row = tuple[str, Sequence[Any]]
"""A row from an archive: a table, and the values of its columns."""

SHOWN = 100
"""Maximum number of items listed individually."""


_TOLD = 5
"""Maximum number of items listed in the error that rejects an archive."""


class LeftOutItem(BaseModel):
    """Something of the archive that did not come in. The text itself is never repeated."""

    kind: str = Field(
        description="memory (or a part of one), app, category, history, revision, access_log, rule, policy, capture or"
        " user."
    )
    id: str = Field(description="The id that it has in the archive; of a revision, its memory's.")
    reason: str = Field(description="The field, and what is wrong with it.")


class NoteItem(BaseModel):
    """Something of the archive that came in, though not to the letter."""

    kind: str = Field(description="memory, app, revision, access_log or user.")
    id: str = Field(description="The id that it has in the archive; of a revision, its memory's.")
    note: str = Field(description="The field, and what became of it.")


class MemoriesReport(BaseModel):
    """The result for the memories."""

    added: int
    replaced: int = Field(description="Were there, and are now as the archive has them.")
    unchanged: int = Field(description="Were there, exactly as the archive has them.")
    skipped: int = Field(description="Were there, and were left as they are (mode skip).")
    renamed: int = Field(description="Added under another id, because another user has a memory of that id.")
    archived_twins: int = Field(description="Came in archived, because another active memory says the same.")
    left_out: int = Field(description="Refused for their content.")


class ImportReport(BaseModel):
    """The numbers of an import. Those without a name of their own count what was made or changed."""

    memories: MemoriesReport
    apps: int
    categories: int
    history: int
    revisions: int
    access_logs: int
    rules: int
    policies: int
    descriptions: int = Field(description="What the user says that categories are about.")
    captures: int
    vectors: int
    left_out: list[LeftOutItem] = Field(description=f"What did not come in; the first {SHOWN}.")
    mended: int = Field(description="Numbers that JSON cannot say, such as NaN; null stands where they stood.")
    notes: list[NoteItem] = Field(description=f"What came in otherwise than it was written; the first {SHOWN}.")


@dataclass(slots=True)
class SkippedItems:
    """The first items that were left out, and the first that were changed."""

    items: list[LeftOutItem] = field(default_factory=list)
    notes: list[NoteItem] = field(default_factory=list)
    mended: int = 0

    def add(self, kind: str, id_: str, reason: str) -> None:
        """Adds an item that is left out."""
        if len(self.items) < SHOWN:
            self.items.append(LeftOutItem(kind=kind, id=id_, reason=reason[:300]))

    def refuse_any(self) -> None:
        """Rejects the archive if anything in it would be left out.

        Raises:
            Invalid: something would be left out; the message lists the first items.
        """
        if self.items:
            told = "; ".join(f"{item.kind} {item.id}: {item.reason}" for item in self.items[:_TOLD])
            more = "" if len(self.items) <= _TOLD else "; and more"
            raise Invalid(
                "file",
                f"holds what cannot come in, so nothing came in: {told}{more}",
                code="import_refused",
                hint="With on_error=skip the rest comes in, and the report tells what does not.",
            )

    def mend(self, kind: str, id_: str, field: str, numbers: int) -> None:
        """Adds an item that is imported with null in place of numbers that JSON cannot represent."""
        self.mended += numbers
        if len(self.notes) < SHOWN:
            note = f"{field}: {numbers:,} numbers that JSON cannot say, such as NaN, became null"
            self.notes.append(NoteItem(kind=kind, id=id_, note=note))

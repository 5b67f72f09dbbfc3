"""The report of an import: how much of each kind was imported, and what was left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, Field

from openmemory.errors import Invalid

MAX_LISTED = 100
"""Maximum number of items listed individually."""


_MAX_IN_ERROR = 5
"""Maximum number of items listed in the error that rejects an archive."""


class LeftOutItem(BaseModel):
    """An item of the archive that was not imported. Its text is never repeated."""

    kind: str = Field(
        description="memory (or a part of one), app, category, history, revision, access_log, rule, policy, capture,"
        " source, passage, project, anchor or user."
    )
    id: str = Field(
        description="The item's id in the archive; for a revision, the id of its memory; the namespace of a project,"
        " the hash of an anchor."
    )
    reason: str = Field(description="The field and the problem.")


class NoteItem(BaseModel):
    """An item of the archive that was changed on import."""

    kind: str = Field(description="memory, app, capture, category, revision, access_log or user.")
    id: str = Field(description="The item's id in the archive; for a revision, the id of its memory.")
    note: str = Field(description="The field and the change.")


class MemoriesReport(BaseModel):
    """The result for the memories."""

    added: int
    replaced: int = Field(description="Existing memories that were overwritten (mode overwrite).")
    unchanged: int = Field(description="Existing memories that equal those of the archive.")
    skipped: int = Field(description="Existing memories that were left unchanged (mode skip).")
    renamed: int = Field(description="Added under a new id, because another user has a memory with the original id.")
    archived_duplicates: int = Field(
        description="Imported as archived, because another active memory has the same text."
    )
    left_out: int = Field(description="Rejected because of their content.")


class ImportReport(BaseModel):
    """The report of an import. Counts are of items that were created or changed."""

    memories: MemoriesReport
    apps: int
    categories: int
    history: int
    revisions: int
    access_logs: int
    rules: int
    policies: int
    descriptions: int = Field(description="The user's descriptions of categories.")
    captures: int
    passages: int = Field(description="Messages of conversations, and passages of files.")
    vectors: int
    adopted_ids: list[str] = Field(
        description="The user and apps, as `user NAME` and `app NAME`, that nothing referred to yet and that have the"
        f" archive's ids now; the first {MAX_LISTED}."
    )
    kept_ids: list[str] = Field(
        description="Those that have other ids here than in the archive, and keep them because something refers to them"
        f" already, or because the archive's ids are taken; the first {MAX_LISTED}."
    )
    left_out: list[LeftOutItem] = Field(description=f"Items that were not imported; the first {MAX_LISTED}.")
    mended: int = Field(description="Numbers that JSON does not allow, such as NaN, and that were replaced by null.")
    notes: list[NoteItem] = Field(description=f"Items that were changed on import; the first {MAX_LISTED}.")


@dataclass(slots=True)
class SkippedItems:
    """The first items that were left out, and the first that were changed."""

    items: list[LeftOutItem] = field(default_factory=list)
    notes: list[NoteItem] = field(default_factory=list)
    mended: int = 0

    def add(self, kind: str, id_: str, reason: str) -> None:
        """Adds an item that is left out."""
        if len(self.items) < MAX_LISTED:
            self.items.append(LeftOutItem(kind=kind, id=id_, reason=reason[:300]))

    def refuse_any(self) -> None:
        """Rejects the archive if anything in it would be left out.

        Raises:
            Invalid: something would be left out; the message lists the first items.
        """
        if self.items:
            problems = "; ".join(f"{item.kind} {item.id}: {item.reason}" for item in self.items[:_MAX_IN_ERROR])
            more = "" if len(self.items) <= _MAX_IN_ERROR else "; and more"
            raise Invalid(
                "file",
                f"contains items that cannot be imported, so nothing was imported: {problems}{more}",
                code="import_refused",
                hint="With on_error=skip, the other items are imported, and the report lists these.",
            )

    def mend(self, kind: str, id_: str, field: str, numbers: int) -> None:
        """Adds an item that is imported with null in place of numbers that JSON cannot represent."""
        self.mended += numbers
        if len(self.notes) < MAX_LISTED:
            note = f"{field}: {numbers:,} numbers that JSON does not allow, such as NaN, became null"
            self.notes.append(NoteItem(kind=kind, id=id_, note=note))

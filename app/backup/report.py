"""What became of an archive: how much of each kind came in, and what was left out and why."""

from __future__ import annotations

from dataclasses import dataclass, field

from pydantic import BaseModel, Field

SHOWN = 100
"""The most that is told one by one."""


class LeftOutItem(BaseModel):
    """Something of the archive that did not come in. The text itself is never repeated."""

    kind: str = Field(
        description="memory (or a part of one), app, category, history, revision, access_log, rule, policy or user."
    )
    id: str = Field(description="The id that it has in the archive; of a revision, its memory's.")
    reason: str = Field(description="The field, and what is wrong with it.")


class MemoriesReport(BaseModel):
    """What became of the memories."""

    added: int
    replaced: int = Field(description="Were there, and are now as the archive has them.")
    unchanged: int = Field(description="Were there, exactly as the archive has them.")
    skipped: int = Field(description="Were there, and were left as they are (mode skip).")
    renamed: int = Field(description="Added under another id, because another user has a memory of that id.")
    archived_twins: int = Field(description="Came in archived, because another active memory says the same.")
    left_out: int = Field(description="Refused for their content.")


class ImportReport(BaseModel):
    """How much came in. Numbers without a name of their own count what was made or changed."""

    memories: MemoriesReport
    apps: int
    categories: int
    history: int
    revisions: int
    access_logs: int
    rules: int
    policies: int
    vectors: int
    left_out: list[LeftOutItem] = Field(description=f"What did not come in; the first {SHOWN}.")


@dataclass(slots=True)
class LeftOut:
    """The first of what is left out."""

    items: list[LeftOutItem] = field(default_factory=list)

    def add(self, kind: str, id_: str, reason: str) -> None:
        if len(self.items) < SHOWN:
            self.items.append(LeftOutItem(kind=kind, id=id_, reason=reason[:300]))

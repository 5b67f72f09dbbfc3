"""Schemas of decisions about memories: facts that disagree, near duplicates, and outdated memories."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from uuid import UUID

from pydantic import BaseModel, Field

from openmemory.memories.schemas import MemoryRow


class SeenVersion(NamedTuple):
    """A memory, and the revision of its text that the user saw. None: any revision."""

    id: UUID
    revision: int | None


class FactChoice(NamedTuple):
    """A decision of the user: the key, the memory whose value holds, and the other memories that the user saw."""

    key: str
    kept: SeenVersion
    others: Sequence[SeenVersion]


class ComparedMemory(MemoryRow):
    """A memory of a pair."""

    app_name: str
    namespace: str
    kind: str
    revision: int


class ReplacementView(BaseModel):
    """Two memories of which the newer may replace the older."""

    newer: ComparedMemory
    older: ComparedMemory
    replaces: bool = Field(description="It seems to replace it; false: it may.")
    because: list[str] = Field(description="What speaks for it, the strongest first.")


class ReplacementList(BaseModel):
    """A page of pairs, those with the newest texts first."""

    items: list[ReplacementView]
    total: int
    page: int
    size: int


class Decided(BaseModel):
    """The result, in words. `action`: the id to undo it for some minutes, if it changed memories."""

    message: str
    action: UUID | None = None


class FactView(BaseModel):
    """The value that a memory gives a key."""

    value: str
    alone: bool = Field(description="The memory says nothing else.")
    memory: ComparedMemory


class ConflictView(BaseModel):
    """A key to which the memories of one namespace give different values, the newest first."""

    key: str
    namespace: str
    facts: list[FactView]
    more: int = Field(description="The number of memories with that key that are not shown.")


class ConflictList(BaseModel):
    """A page of conflicts, those with the newest facts first."""

    items: list[ConflictView]
    total: int
    page: int
    size: int


class DuplicateView(BaseModel):
    """Two memories that say nearly the same."""

    newer: ComparedMemory
    older: ComparedMemory
    similarity: float
    says_more: bool = Field(description="The newer one says more than the older one.")


class DuplicateList(BaseModel):
    """The pairs whose newer memory is in one part of the user's memories, the newest first."""

    items: list[DuplicateView]
    looked_at: int = Field(description="The number of memories in this part.")
    next: str | None = Field(description="The value of `after` for the next part; null: this is the last one.")
    note: str | None = Field(description="Why nothing could be compared.")


class ChangeUndone(BaseModel):
    """The result of an undo."""

    restored: int = Field(description="Memories that are what they were before.")
    kept: int = Field(description="Memories that stay, because they were changed since.")

"""Results of the timeline: memories as of a time, and changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Annotated, NamedTuple, Self
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.errors import Invalid
from openmemory.memories.state import State

MAX_PAGE_SIZE = 100

WEEK = timedelta(days=7)
"""The time whose changes are listed if no beginning is named."""


_PLACE = "%Y-%m-%dT%H:%M:%S.%f"


class Place(NamedTuple):
    """The time and the id of the last row of a page. The next page begins after it."""

    at: datetime
    id: UUID

    @classmethod
    def of(cls, text: str) -> Self:
        """Returns the place that `text` names.

        Raises:
            Invalid: it names none.
        """
        at, _, id_ = text.partition("_")
        try:
            return cls(datetime.strptime(at, _PLACE).replace(tzinfo=UTC), UUID(id_))
        except ValueError:
            raise Invalid("after", "must be the end of a page, as the page before gives it") from None

    @property
    def text(self) -> str:
        """The place as addresses and answers hold it."""
        return f"{self.at.astimezone(UTC):{_PLACE}}_{self.id}"


Next = Annotated[str | None, Field(description="The value of `after` for the next page; null: this is the last one.")]


class MemoryThen(BaseModel):
    """A memory with the text that it had at a time."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    content: str = Field(description="Its text then.")
    app_name: str
    namespace: str
    kind: str
    created_at: datetime
    updated_at: datetime = Field(description="When it had last changed then.")
    state: State = Field(description="Its state now; it was active then.")
    same: bool = Field(description="True if its text is the same now.")
    categories: list[str] = Field(description="Its categories now.")


class MemoriesThen(BaseModel):
    """A page of memories as of a time, newest first."""

    items: list[MemoryThen]
    next: Next


class Change(BaseModel):
    """One change of a memory: of its state, or of its text."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    memory_id: UUID
    at: datetime
    what: str = Field(description="added, changed, superseded, archived, expired, paused, deleted or restored.")
    content: str = Field(description="The text after a change of the text; else the text now.")
    before: str | None = Field(description="The text before a change of the text.")
    app_name: str | None = Field(description="The app that did it; null: the user, or an app that is gone.")
    superseded_by: UUID | None


class Changes(BaseModel):
    """A page of changes, newest first."""

    items: list[Change]
    next: Next

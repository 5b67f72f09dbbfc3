"""Response schemas of statistics about a user's memories, and about those of one app."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.memories.schemas import RecordModel
from openmemory.memories.state import State
from openmemory.serialization.timestamps import NaiveTime

MAX_DAYS = 366
"""The most days that are counted one by one."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The size of a set of memories. Counts come with the largest first."""

    total: int
    expiring: int
    oldest: datetime | None
    """When the first one was made."""
    newest: datetime | None
    """When the last one was changed."""
    parts: dict[str, int]
    """The numbers by the value of a field of the metadata."""
    categories: dict[str, int]


class AppRow(BaseModel):
    """An app as it is stored. Times are UTC without an offset."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    owner_id: UUID = Field(description="The user's internal id.")
    name: str
    description: str | None
    metadata_: dict[str, Any]
    is_active: bool
    created_at: NaiveTime
    updated_at: NaiveTime


class Profile(BaseModel):
    """The totals of a user."""

    total_memories: int = Field(description="Memories that are not deleted.")
    total_apps: int
    apps: list[AppRow]


class CategoryRow(BaseModel):
    """A category as it is stored. Times are UTC without an offset."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    name: str
    description: str | None
    created_at: NaiveTime
    updated_at: NaiveTime


class CategoryList(BaseModel):
    """The categories of a user's memories, by name."""

    categories: list[CategoryRow]
    total: int


class AppDay(BaseModel):
    """The writes and accesses of one app on one day, in the time zone of the user."""

    app_id: UUID
    app_name: str
    day: date
    written: int = Field(description="Memories that it wrote, deleted ones too.")
    accessed: int = Field(description="Its accesses; several to one memory count each.")


class MemoryOfApp(RecordModel):
    """A memory among those of the app that wrote it. Its time is UTC without an offset."""

    id: UUID
    content: str
    created_at: NaiveTime
    state: State
    app_id: UUID
    categories: list[str]
    metadata_: dict[str, Any]


class AccessedMemory(MemoryOfApp):
    """A memory among those that an app accessed. Its time is UTC without an offset."""

    app_name: str
    text_app_name: str = Field(exclude=True, description="The app that wrote the present text, for the page.")


class Accessed(BaseModel):
    """A memory, and how often the app accessed it."""

    memory: AccessedMemory
    access_count: int


class _AppPage(BaseModel):
    total: int
    page: int
    page_size: int


class AppMemories(_AppPage):
    """A page of what an app wrote, newest first."""

    memories: list[MemoryOfApp]


class AppAccesses(_AppPage):
    """A page of what an app accessed, most often first."""

    memories: list[Accessed]


class FeedMemory(BaseModel):
    """A memory of an event: its id and the beginning of its text."""

    id: UUID
    text: str


class FeedEntry(BaseModel):
    """Something that came in or was read."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    event: str = Field(description="What was done, such as `memory.search`.")
    app_name: str | None
    count: int = Field(description="The number of memories.")
    memories: list[FeedMemory] = Field(description="The first few of them that still exist.")


class FeedPage(BaseModel):
    """A page of the feed, newest first. `next`: the value of `before` for the next page; null on the last one."""

    entries: list[FeedEntry]
    next: int | None


class DailyStats(BaseModel):
    """The writes and accesses of apps by day."""

    days: list[AppDay]

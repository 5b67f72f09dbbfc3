"""Requests and results of the descriptions of categories and of category assignment."""

from __future__ import annotations

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, Field

MAX_DESCRIPTION_LENGTH = 500
"""The maximum length of a description."""

MAX_CHARACTERS = 2_000
"""The number of characters of a text that are searched for words."""


class DescribedCategory(BaseModel):
    """A category that the service files under, and by what."""

    id: UUID | None = Field(description="Its id; null: no memory has it yet.")
    name: str
    description: str = Field(description="What it is about: what the memories are compared with.")
    described_by: Literal["user", "everybody", "openmemory"] = Field(
        description="Who says so: the user; who set up what all users read, of a category that the user files under;"
        " or it is one of OpenMemory's twenty."
    )
    created_at: datetime | None = Field(description="When the user first said so; null: they did not.")
    updated_at: datetime | None = Field(description="When the user last said something else.")


class DescribedCategories(BaseModel):
    """The categories that the service assigns to a user's memories: their own by name, then OpenMemory's."""

    categories: list[DescribedCategory]
    total: int


MAX_MEMORIES = 500
"""The maximum number of memories in a preview."""


class WouldBe(BaseModel):
    """A category that a memory would get."""

    name: str
    confidence: float = Field(description="How sure the service is, 0 to 1.")


class PreviewItem(BaseModel):
    """A memory whose categories no client has set."""

    memory_id: UUID
    memory: str = Field(
        description=f"Its text, or the first {MAX_CHARACTERS:,} characters, which are those that count."
    )
    categories: list[WouldBe] = Field(description="The categories that it would get, the surest first.")
    now: list[str] = Field(description="The categories that the service has assigned by now.")
    ready: bool = Field(description="False: it has no vector of the model in use yet, and so cannot get categories.")


class Preview(BaseModel):
    """The categories that would be assigned, newest memories first."""

    items: list[PreviewItem]
    total: int = Field(description="Memories that would be looked at in all.")


class Waiting(BaseModel):
    """Memories that the service is to look at for categories; `failed`: of these, those that it could not file yet."""

    waiting: int
    failed: int

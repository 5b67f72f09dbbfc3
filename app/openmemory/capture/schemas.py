"""Schemas of captures: the input and the result."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.capture.models import Status
from openmemory.memories.idempotency import IdempotentRequest
from openmemory.memories.schemas import Event, MemoryCreate

Role = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation."""

    role: Role
    content: str


@dataclass(frozen=True, slots=True)
class CaptureCreate:
    """The input of a capture: the text of `like`, or a conversation. `like` also holds fields that all memories get.

    `wait`: True if the caller waits for the language model; None means True for a text and False for a conversation.
    `once`: the idempotency key of the request, if it must be processed only once.
    """

    like: MemoryCreate
    messages: tuple[Turn, ...] = ()
    wait: bool | None = None
    once: IdempotentRequest | None = None


@dataclass(frozen=True, slots=True)
class ShownMemory:
    """A memory as it was shown to the language model."""

    id: UUID
    content: str
    revision: int


@dataclass(frozen=True, slots=True)
class Decision:
    """One change to make. `memory` is the memory to change; None if the change adds a memory."""

    event: Event
    memory: ShownMemory | None = None
    text: str = ""
    categories: tuple[str, ...] = ()
    kind: str | None = None
    importance: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    emotion: dict[str, Any] | None = None


@dataclass(slots=True)
class ModelDecisions:
    """The changes that a language model asks for, and those that were refused."""

    decisions: list[Decision] = field(default_factory=list)
    refused: list[Refusal] = field(default_factory=list)


class Refusal(BaseModel):
    """Something that was not done, and why."""

    memory: str | None = Field(default=None, description="What would have been remembered; left out if it is a secret.")
    id: UUID | None = Field(default=None, description="The memory that it is about.")
    reason: str = Field(
        description="A code: known, junk, secret, repeats, repeated_id, unknown_id, changed_meanwhile, not_allowed,"
        " injection, invalid, too_many, duplicate_memory ..."
    )
    detail: str | None = Field(default=None, description="The reason in words.")


class CaptureResult(BaseModel):
    """One change, as OpenMemory told of it."""

    id: UUID
    memory: str
    event: Event = Field(
        description="ADD, UPDATE, DELETE, NONE (it says so already), or SUPERSEDE: it follows `superseded_id`."
    )
    previous_memory: str | None = Field(default=None, description="What UPDATE and SUPERSEDE have replaced.")
    superseded_id: UUID | None = None


class Outcome(BaseModel):
    """The outcome of a capture."""

    results: list[CaptureResult]
    refused: list[Refusal]
    capture_id: UUID
    status: Status
    error: str | None = Field(
        default=None, description="Why the last attempt failed; the text is kept and tried again."
    )


class CaptureView(Outcome):
    """A capture whole."""

    app_id: UUID
    app_name: str
    namespace: str
    input: dict[str, Any] = Field(description="The `text` or the `messages` that were sent.")
    attempts: int
    next_attempt_at: datetime | None = Field(description="When it is tried next; null: it is over.")
    model: str | None
    calls: int = Field(description="Questions to the language model, failed ones included.")
    prompt_tokens: int
    completion_tokens: int
    seconds: float = Field(description="Seconds that the language model took in all.")
    created_at: datetime
    finished_at: datetime | None


class Spent(BaseModel):
    """The language model usage of captures, and how many of them ended."""

    model_config = ConfigDict(from_attributes=True)

    calls: int = Field(description="Questions to the language model, those of failed attempts included.")
    prompt_tokens: int
    completion_tokens: int
    seconds: float = Field(description="Seconds that the language model took in all.")
    done: int = Field(description="Captures that were done then.")
    failed: int = Field(description="Captures that failed then for good; sent again they may be done later.")
    undone: int = Field(description="Captures that were taken back or given up then.")


class SpentByApp(Spent):
    """The usage of one app on one day."""

    day: date = Field(description="In UTC.")
    app_id: UUID
    app_name: str


class Usage(BaseModel):
    """The usage of captures by day and app: the newest day first, without apps that used nothing. It stays when
    captures are removed."""

    model_config = ConfigDict(populate_by_name=True)

    first: date = Field(alias="from", description="The first day, in UTC.")
    last: date = Field(alias="to", description="The last day, in UTC.")
    days: list[SpentByApp]
    total: Spent
    waiting: int = Field(description="Captures that wait or are worked on now.")


class CapturePage(BaseModel):
    """A page of captures, newest first."""

    items: list[CaptureView]
    total: int
    page: int
    size: int

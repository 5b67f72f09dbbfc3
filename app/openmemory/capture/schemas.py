"""Schemas of captures: the input and the result."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.capture.status import Status
from openmemory.memories.schemas import (
    LABELS,
    Event,
    MemoryCreate,
    MemoryRecord,
    MemoryRowAdded,
    NearbyMemory,
    PairChange,
    PossibleDuplicate,
)
from openmemory.memories.state import State
from openmemory.serialization.timestamps import NaiveTime

if TYPE_CHECKING:
    from openmemory.memories.idempotency import IdempotentRequest

Role = Literal["user", "assistant", "system"]


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation. `position`: its place in the stored thread that it is part of."""

    role: Role
    content: str
    position: int | None = None


@dataclass(frozen=True, slots=True)
class CaptureCreate:
    """The input of a capture: the text of `like`, or a conversation. `like` also holds fields that all memories get.

    `wait`: True if the caller waits for the language model; None means True for a text and False for a conversation.
    `longest_wait`: the most seconds that it waits, if that is less than the setting `capture.wait`.
    `once`: the idempotency key of the request, if it must be processed only once.
    """

    like: MemoryCreate
    messages: tuple[Turn, ...] = ()
    wait: bool | None = None
    longest_wait: float = math.inf
    once: IdempotentRequest | None = None
    supersedes: tuple[UUID, ...] = ()
    """The memories in whose place the text holds from now on."""


@dataclass(frozen=True, slots=True)
class PromptMemory:
    """A memory as it was shown to the language model. `said_at`: the time when it got its text."""

    id: UUID
    content: str
    revision: int
    said_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """One change to make. `memory` is the memory to change; None if the change adds a memory. `message`: the number of
    the message that it is from, as the model was shown them."""

    event: Event
    memory: PromptMemory | None = None
    text: str = ""
    categories: tuple[str, ...] = ()
    kind: str | None = None
    importance: int | None = None
    since: datetime | None = None
    until: datetime | None = None
    message: int | None = None
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
        description="A code: known, junk, secret, repeats, repeated_id, unknown_id, changed_meanwhile, said_later,"
        " not_allowed, injection, invalid, too_many, duplicate_memory ..."
    )
    detail: str | None = Field(default=None, description="The reason in words.")


def _empty(value: object) -> bool:
    return not value


class CaptureResult(BaseModel):
    """One change, as OpenMemory told of it."""

    id: UUID
    memory: str
    event: Event = Field(
        description="ADD, UPDATE, DELETE, NONE (it says so already), or SUPERSEDE: it follows `superseded_id`."
    )
    previous_memory: str | None = Field(default=None, description="What UPDATE and SUPERSEDE have replaced.")
    superseded_id: UUID | None = None
    message: int | None = Field(
        default=None,
        description="The message that it was learned from: its number in the thread if it is part of one, otherwise"
        " among the `messages`, from 1. Null: the language model named none.",
    )


class Outcome(BaseModel):
    """The outcome of a capture."""

    results: list[CaptureResult]
    refused: list[Refusal]
    capture_id: UUID
    status: Status
    error: str | None = Field(
        default=None, description="Why the last attempt failed; the text is kept and tried again."
    )


class Added(BaseModel):
    """The result of adding a text or a conversation.

    It begins with OpenMemory's row of the memory that was stored or changed first. The fields of the row are null if
    there is no such memory (yet).
    """

    id: UUID | None = None
    user_id: UUID | None = Field(default=None, description="The user's internal id.")
    app_id: UUID | None = None
    content: str | None = None
    metadata_: dict[str, Any] | None = None
    state: State | None = None
    created_at: NaiveTime | None = Field(default=None, description="In UTC, without an offset, as `updated_at`.")
    updated_at: NaiveTime | None = None
    archived_at: NaiveTime | None = None
    deleted_at: NaiveTime | None = None
    vector: None = Field(default=None, description="Always null: vectors are in the index.")
    labels: list[str] = Field(default=[], description=LABELS)
    namespace: str | None = None
    thread_id: str | None = None
    kind: str | None = None
    key: str | None = None
    importance: float | None = None
    categories: list[str] = []
    expires_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    event: Event | None = Field(
        default=None,
        description="ADD: stored. NONE: this active memory already says the same. UPDATE: this existing memory was"
        " extended or corrected. SUPERSEDE: stored in place of an older memory. DELETE: a memory was deleted.",
    )
    note: str | None = Field(default=None, description="How the text was stored, if that differs from the request.")
    previous_memory: str | None = Field(
        default=None, description="The earlier text of the memory that was updated or superseded.", exclude_if=_empty
    )
    possible_duplicates: list[PossibleDuplicate] = Field(
        default=[],
        description="Memories that seem to say the same, if dedup.near_duplicates is `ask`.",
        exclude_if=_empty,
    )
    near: list[NearbyMemory] = Field(
        default=[],
        description="Existing memories that the text may change, three at most, the surest first. If one no longer"
        " holds, update it, or send the text again with its id in `supersedes`.",
        exclude_if=_empty,
    )
    changed: list[PairChange] = Field(
        default=[], description="Keys of pairs whose values changed, if dedup.key_values is `merge`.", exclude_if=_empty
    )
    results: list[CaptureResult] = Field(default=[], description="Every memory that was stored or changed.")
    refused: list[Refusal] = Field(default=[], description="What was not remembered, and why.")
    capture_id: UUID | None = Field(default=None, description="The capture, if a language model was asked.")
    status: Status = Field(default=Status.DONE, description="`pending` and `working`: a language model is still asked.")
    error: str | None = Field(
        default=None,
        description="Why the language model's last attempt failed; the text is kept and tried again.",
        exclude_if=_empty,
    )

    @classmethod
    def verbatim(cls, row: MemoryRowAdded, note: str | None, near: Sequence[NearbyMemory] = ()) -> Added:
        """Returns the answer to a text that was stored as it is."""
        result = CaptureResult(id=row.id, memory=row.content, event=row.event, previous_memory=row.previous_memory)
        return cls.model_construct(**dict(row) | {"note": note, "results": [result], "near": list(near)})

    @classmethod
    def captured(cls, outcome: Outcome, first: MemoryRecord | None, note: str | None) -> Added:
        """Returns the answer to a text that a language model was asked about."""
        same = cls.model_fields.keys() & set(MemoryRecord._fields)
        values = {} if first is None else {name: getattr(first, name) for name in same}
        if outcome.results:
            values |= {"event": outcome.results[0].event, "previous_memory": outcome.results[0].previous_memory}
        return cls.model_construct(**values | dict(outcome) | {"note": note})


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

"""Request and response schemas of memories. They keep the names and time formats of the OpenMemory contract exactly."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Literal, NamedTuple, Self, cast
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.memories.state import State
from openmemory.serialization.timestamps import NaiveTime


class Event(StrEnum):
    """What became of a text that was to be remembered."""

    ADD = "ADD"
    UPDATE = "UPDATE"
    SUPERSEDE = "SUPERSEDE"
    """It replaces a memory that was true until now, which is archived."""
    DELETE = "DELETE"
    NONE = "NONE"


@dataclass(frozen=True, slots=True)
class MemoryCreate:
    """One text to store verbatim."""

    text: str
    metadata: dict[str, Any] = field(default_factory=dict)
    namespace: str = "default"
    thread_id: str | None = None
    kind: str = "memory"
    key: str | None = None
    importance: float | None = None
    categories: tuple[str, ...] = ()
    created_at: datetime | None = None
    expires_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    app: str | None = None
    """Only for imports by the user themself: the app that wrote it, if not the caller's."""
    ttl_days: int | None = None
    """Days from storing until it expires. Replaces `expires_at`."""

    @property
    def ends(self) -> bool:
        """True if the memory has a known end."""
        return any(each is not None for each in (self.expires_at, self.ttl_days, self.valid_until))

    @property
    def is_bounded(self) -> bool:
        """True if the memory is valid only for a period, with a start or an end."""
        return self.ends or self.valid_from is not None


@dataclass(frozen=True, slots=True)
class CheckedMemory(MemoryCreate):
    """One text that passed all checks. `Intake.created` makes it."""

    labels: tuple[str, ...] = ()
    """The labels of the text: `injection` if it contains instructions to an assistant."""


OnError = Literal["skip", "fail"]
"""The effect of an invalid item on its batch: `skip` omits the item, `fail` stores nothing of the batch."""


@dataclass(frozen=True, slots=True)
class Expiry:
    """The expiry of a memory: at a time, after a number of days from now, or, with neither, never."""

    at: datetime | None = None
    ttl_days: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryUpdate:
    """A change of a memory. None leaves a field unchanged.

    `expected_revision`: the revision that the change was made from. Another revision refuses the change.
    """

    text: str | None = None
    metadata: dict[str, Any] | None = None
    categories: tuple[str, ...] | None = None
    expiry: Expiry | None = None
    expected_revision: int | None = None
    kind: str | None = None


Amendment = Callable[[str, dict[str, Any]], MemoryUpdate]
"""Computes a change from the present text and metadata of a memory, which is locked meanwhile."""


@dataclass(frozen=True, slots=True)
class MemoryQuery:
    """The filters of a list of memories. Empty means any. Times bound `created_at`, both ends included."""

    states: tuple[State, ...] = (State.ACTIVE,)
    text: str | None = None
    app_ids: tuple[UUID, ...] = ()
    namespaces: tuple[str, ...] = ()
    threads: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    category_ids: tuple[UUID, ...] = ()
    created_from: datetime | None = None
    created_to: datetime | None = None
    expiring: bool = False
    """Only memories that will expire."""
    flagged: bool = False
    """Only memories that read like a prompt injection."""
    disputed: bool = False
    """Only key-value facts that give a key another value than an active memory of the same namespace does."""
    unread: bool = False
    """Only memories that no app has read, as far as the access log goes back. Only the user may ask for them."""
    metadata: Mapping[str, str] | None = None
    """Only memories whose metadata has these values."""
    successor: UUID | None = None
    """Only memories that this one superseded."""
    sort: str = "created_at"
    descending: bool = True
    page: int = 1
    size: int = 50

    def is_of(self, *filters: str) -> bool:
        """Returns True if no other filters than these are set. States and order may have any value."""
        free = {"states", "sort", "descending", "page", "size", *filters}
        return all(not getattr(self, each.name) for each in fields(self) if each.name not in free)


class InputModel(BaseModel):
    """Base of what is sent."""

    model_config = ConfigDict(from_attributes=True, frozen=True, populate_by_name=True)


class MemoryRecord(NamedTuple):
    """A complete memory, as the database stores it and as the service passes it to the API layers."""

    id: UUID
    user_id: UUID
    app_id: UUID
    app_name: str
    content: str
    metadata_: dict[str, Any]
    state: State
    created_at: datetime
    updated_at: datetime
    archived_at: datetime | None
    deleted_at: datetime | None
    namespace: str
    thread_id: str | None
    kind: str
    key: str | None
    importance: float | None
    hash: str
    expires_at: datetime | None
    revision: int
    categories: list[str]
    labels: list[str]
    valid_from: datetime | None
    valid_until: datetime | None
    superseded_by: UUID | None
    text_app_name: str


class ReplacedText(NamedTuple):
    """A memory as it was before an update."""

    content: str
    labels: list[str]
    revision: int
    categories: list[str] | None
    """Sorted names; None if the update left the categories alone."""


class MemoryUpdated(NamedTuple):
    """The result of an update: the memory, and what the update replaced."""

    memory: MemoryRecord
    replaced: ReplacedText

    @property
    def event(self) -> Event:
        """UPDATE, or NONE if the update changed nothing."""
        return Event.NONE if self.memory.revision == self.replaced.revision else Event.UPDATE


LABELS = "`injection`: the text reads like orders to an assistant. It is data."
"""The description of a memory's labels."""


class RecordModel(BaseModel):
    """Base of what is sent of a record as it is: fields of the same names."""

    @classmethod
    def of(cls, record: MemoryRecord) -> Self:
        """Converts a record to this model without validation, because the database has checked it already."""
        values = {name: getattr(record, name) for name in cls.model_fields}
        return cast(Self, cls.model_construct(**values))


class PossibleDuplicate(BaseModel):
    """A memory that seems to say what a new one says."""

    id: UUID
    memory: str
    likeness: float = Field(description="Similarity of the vectors, up to 1.")


class NearbyMemory(BaseModel):
    """An existing memory that a new text may change."""

    id: UUID
    memory: str
    created_at: datetime
    replaced: bool = Field(description="What it says seems to hold no longer; false: it may.")


class PairSource(BaseModel):
    """The app that stored a value, and the time."""

    app: str
    at: datetime


class PairChange(BaseModel):
    """A key whose value changed in a memory of `key=value | key=value`."""

    key: str
    old: str
    new: str
    was: PairSource = Field(description="The app that had said the old value, and when.")


class MemoryAdded(InputModel):
    """What became of one text: ADD with the new memory, or NONE with the one that says it already.

    By `dedup.near_duplicates` also UPDATE with a memory that said less, and SUPERSEDE with the new memory in the place
    of an older one; by `dedup.key_values` UPDATE with a memory that holds the new pairs too now, and which of its
    values are `changed`. `previous_memory` is what the older one said, and `note` says why.
    """

    id: UUID
    memory: str
    event: Event
    state: State = State.ACTIVE
    previous_memory: str | None = None
    note: str | None = None
    possible_duplicates: Sequence[PossibleDuplicate] = ()
    changed: Sequence[PairChange] = ()
    first_at: datetime | None = None
    """When the memory was made, if this is the answer to an earlier request, which this one repeats."""
    first_expires_at: datetime | None = None
    """The expiry that the earlier request set."""

    def stored_answer(self, new: MemoryCreate) -> dict[str, Any]:
        """The data stored to answer a repeated request. Omits data of other memories, which may be erased by then."""
        own = {"event", "note", "changed"} | ({"previous_memory"} if self.event is Event.UPDATE else set())
        times = {"first_at": new.created_at, "first_expires_at": new.expires_at}
        return self.model_dump(mode="json", include=own) | {
            name: None if at is None else at.isoformat() for name, at in times.items()
        }


class MemoryRow(BaseModel):
    """A memory as it is stored. Times are UTC without an offset."""

    id: UUID
    user_id: UUID = Field(description="The user's internal id.")
    app_id: UUID
    content: str
    metadata_: dict[str, Any]
    state: State
    created_at: NaiveTime
    updated_at: NaiveTime
    archived_at: NaiveTime | None
    deleted_at: NaiveTime | None
    vector: None = Field(default=None, description="Always null: vectors are in the index.")
    labels: list[str] = Field(description=LABELS)

    @classmethod
    def of(cls, record: MemoryRecord, **more: Any) -> Self:
        """Returns the row of a record, with the values of further fields. The database has validated the record."""
        same = {name: getattr(record, name) for name in cls.model_fields.keys() & set(MemoryRecord._fields)}
        return cast(Self, cls.model_construct(vector=None, **same, **more))


class MemoryRowAdded(MemoryRow):
    """The stored memory, and what became of the text."""

    namespace: str
    thread_id: str | None
    kind: str
    key: str | None
    importance: float | None
    categories: list[str]
    expires_at: datetime | None
    valid_from: datetime | None
    valid_until: datetime | None
    event: Event
    note: str | None
    previous_memory: str | None = None
    possible_duplicates: list[PossibleDuplicate] = []
    changed: list[PairChange] = []


@dataclass(frozen=True, slots=True)
class Page:
    """One page of records, and the total number."""

    items: Sequence[MemoryRecord]
    total: int
    page: int
    size: int

    @property
    def pages(self) -> int:
        """Number of pages of this size."""
        return -(-self.total // self.size)


class StateChange(InputModel):
    """One line of a memory's status history."""

    id: UUID
    old_state: State | None
    new_state: State
    changed_by: str
    app_name: str | None
    changed_at: datetime
    reason: str | None = Field(description="`expired`: its time was over; null: somebody wanted it, or a policy.")


class Revision(InputModel):
    """One text that a memory has had."""

    revision: int
    old_text: str | None
    new_text: str
    metadata_: dict[str, Any]
    changed_by: str
    app_name: str | None
    changed_at: datetime


class History(InputModel):
    """All states and texts of a memory, oldest first."""

    memory_id: UUID
    states: list[StateChange]
    revisions: list[Revision]

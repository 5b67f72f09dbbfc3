"""Request and response models for memories. Names, order and time formats are those of OpenMemory; our additions come
last."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from openmemory.capture.schemas import CaptureCreate, Turn
from openmemory.doors.rest.http.caller import BodyUser, GivenId
from openmemory.errors import Invalid
from openmemory.memories.idempotency import IdempotentRequest
from openmemory.memories.schemas import (
    Expiry,
    MemoryCreate,
    MemoryUpdate,
)
from openmemory.memories.validation import MAX_DAYS
from openmemory.operations.parameters import FromDate, Timezone, ToDate
from openmemory.search.schemas import CorpusName
from openmemory.serialization.timestamps import DateOrTime

FILTER = (
    "Conditions, as mem0 writes them. Fields: namespace, app, app_id, category, category_id, kind, thread_id, key,"
    " importance, created_at, updated_at, metadata.NAME (dots go down). Operators: eq, ne, in, nin, gt, gte, lt, lte,"
    ' contains, icontains, exists; a plain value is eq, a list is in, "*" is exists. AND, OR and NOT combine them.'
)

AS_OF = (
    "Answer as if asked at this time: a time in ISO 8601, or a date, which means its first moment. Without an offset it"
    " is of the time zone of the request. What was written later is not found, relative times count from it, and texts"
    " are those of that time. The user themself also finds what was paused, archived or deleted since."
)

EXPLAIN = (
    "Explain each result: the terms of its score, with the rank, raw score, normalised score and weight of every"
    " retrieval method. Explain the answer: how the question was read."
)


def _in_utc(value: datetime) -> datetime:
    try:
        return value.astimezone(UTC) if value.tzinfo else value
    except OverflowError:
        raise ValueError("must lie within the years 1 to 9999 in UTC") from None


Moment = Annotated[DateOrTime, AfterValidator(_in_utc)]

Days = Annotated[int, Field(ge=1, le=MAX_DAYS)]


class NewMemory(BaseModel):
    """The fields of a text to remember."""

    text: str = Field(description="What to remember, verbatim.")
    app: str | None = Field(default=None, description="The app that writes; left out: the default app, `openmemory`.")
    namespace: str = Field(default="default", description="A project or workspace inside the user's memory.")
    thread_id: str | None = Field(default=None, description="A conversation or work session inside the namespace.")
    kind: str = Field(default="memory", description="What sort of memory it is, such as `preference` or `decision`.")
    key: str | None = Field(default=None, description="A name that you choose for it.")
    importance: float | None = Field(default=None, ge=0, le=1, description="0 to 1.")
    categories: list[str] = []
    metadata: dict[str, Any] = {}
    created_at: Moment | None = Field(
        default=None, description="When it was said, a date, or a time with an offset; left out: now."
    )
    expires_at: Moment | None = Field(
        default=None, description="When it expires, a date, or a time with an offset. Nobody finds it after that."
    )
    ttl_days: Days | None = Field(
        default=None, description="Instead of `expires_at`: the number of days from now after which it expires."
    )

    def create(self, *, app: str | None = None) -> MemoryCreate:
        """Returns the input of the service. `app` is for users who write in the name of an app."""
        fields = {name: getattr(self, name) for name in _CREATE}
        return MemoryCreate(categories=tuple(self.categories), app=app, **fields)


_CREATE = NewMemory.model_fields.keys() - {"app", "categories"}


class SaidMessage(BaseModel):
    """One message of a conversation."""

    role: Literal["user", "assistant", "system"]
    content: str


class NewMemoryOfUser(NewMemory):
    """A text to remember for a user, or a conversation from which facts are extracted.

    Fields that do not exist are ignored, as the retired server did, and `note` in the answer names them.
    """

    model_config = ConfigDict(extra="allow")

    text: str = Field(default="", description="What to remember; needed without `messages`.")
    messages: list[SaidMessage] | None = Field(
        default=None, description="A conversation, instead of `text`; needs a language model."
    )
    user_id: BodyUser = None
    infer: bool | None = Field(
        default=True,
        description="Let the language model extract facts. If none is configured, a text is stored verbatim.",
    )
    background: bool | None = Field(
        default=None,
        alias="async",
        description="Answer at once with the id of a capture, and extract facts in the background. By default only for"
        " `messages`.",
    )

    supersedes: list[GivenId] = Field(
        default=[],
        description="Ids of memories in whose place the text holds from now on, or their first characters. They are"
        " archived, and the text is stored as it is.",
    )

    @property
    def unknown(self) -> str | None:
        """The note on fields that do not exist, or None."""
        if not self.model_extra:
            return None
        names = (name[:60].encode("unicode_escape").decode() for name in sorted(self.model_extra)[:10])
        return f"Unknown fields were ignored: {', '.join(names)}."

    def input(self, once: IdempotentRequest | None, supersedes: Sequence[UUID] = ()) -> CaptureCreate:
        """Returns the input of the service. `once` is the request, if it has an Idempotency-Key, and `supersedes` the
        memories that are meant.

        Raises:
            Invalid: the body has both a text and messages, or neither.
        """
        if self.messages and self.text:
            raise Invalid("messages", "must be left out where text is given")
        if self.messages is not None and not self.messages:
            raise Invalid("messages", "must hold at least one message")
        if self.messages is None and "text" not in self.model_fields_set:
            raise Invalid("text", "is required unless messages are given")
        turns = tuple(Turn(one.role, one.content) for one in self.messages or ())
        return CaptureCreate(
            self.create(),
            turns,
            wait=None if self.background is None else not self.background,
            once=once,
            supersedes=tuple(supersedes),
        )


class MemoryChange(BaseModel):
    """The fields of a memory to change. Fields that are left out stay as they are."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    memory_id: str | None = Field(default=None, description="Ignored: the page of the retired server sends it.")
    memory_content: str | None = None
    metadata: dict[str, Any] | None = None
    categories: list[str] | None = None
    expires_at: Moment | None = Field(
        default=None,
        description="When it expires, a date, or a time with an offset; null: never.",
    )
    ttl_days: Days | None = Field(default=None, description="Instead of `expires_at`: the number of days from now.")
    expected_revision: int | None = Field(
        default=None,
        ge=1,
        le=2**31 - 1,
        description="The revision that the change was made from. Another one is answered with 409, `memory_changed`.",
    )

    def update(self) -> MemoryUpdate:
        """Returns the input of the service."""
        ends = "expires_at" in self.model_fields_set or self.ttl_days is not None
        return MemoryUpdate(
            self.memory_content,
            self.metadata,
            None if self.categories is None else tuple(self.categories),
            Expiry(self.expires_at, self.ttl_days) if ends else None,
            self.expected_revision,
        )


class MemoriesOfUser(BaseModel):
    """Some memories of a user."""

    memory_ids: list[GivenId]
    user_id: BodyUser = None


class MemoryFilter(BaseModel):
    """Which memories to list, and in what order."""

    user_id: BodyUser = None
    page: int = Field(default=1, ge=1, le=1_000_000)
    size: int = Field(default=10, ge=1, le=100)
    search_query: str | None = Field(default=None, description="A part of the text; case is ignored.")
    app_ids: list[UUID] | None = None
    category_ids: list[UUID] | None = None
    sort_column: str | None = Field(default=None, description="memory, app_name or created_at; with sort_direction.")
    sort_direction: str | None = Field(default=None, description="asc or desc.")
    from_date: FromDate | None = None
    to_date: ToDate | None = None
    show_archived: bool | None = False


class SearchBody(BaseModel):
    """The query and its filters. A filter that is left out matches everything."""

    model_config = ConfigDict(extra="forbid")

    query: str
    user_id: BodyUser = None
    app: str | None = Field(
        default=None, description="Search as this app, under its access rules; left out: as the user themself."
    )
    limit: int | None = Field(default=None, ge=1, description="At most this many results; left out: search.limit.")
    namespace: str | None = None
    namespaces: list[str] = []
    thread_id: str | None = None
    kind: str | None = None
    kinds: list[str] = Field(default=[], description="One of these kinds: of passages turn, text and code.")
    app_ids: list[UUID] = Field(default=[], description="Only what these apps wrote.")
    categories: list[str] = []
    corpus: CorpusName = Field(
        default="memories", description="memories, passages (what was said, verbatim), or both side by side."
    )
    path: str | None = Field(default=None, description="Only passages of files whose path begins so.")
    language: str | None = Field(default=None, description="Only passages of files in this language, such as python.")
    symbol: str | None = Field(
        default=None, description="Only passages of code that define this name, such as get or Store.get."
    )
    from_date: FromDate | None = None
    to_date: ToDate | None = None
    filter: dict[str, Any] | None = Field(default=None, description=FILTER)
    as_of: datetime | None = Field(default=None, description=AS_OF)
    timezone: Timezone = None
    explain: bool = Field(default=False, description=EXPLAIN)


def without_none(*values: str | None) -> tuple[str, ...]:
    """Returns the values that were given."""
    return tuple(value for value in values if value is not None)


def parts(text: str | None) -> Iterable[str]:
    """Returns the parts of a comma-separated list."""
    return (part.strip() for part in (text or "").split(",") if part.strip())

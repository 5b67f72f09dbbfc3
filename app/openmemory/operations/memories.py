"""Use cases of single memories, and the answers about them. Names, order and time formats are those of OpenMemory; our
additions come last."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any
from uuid import UUID

from pydantic import BaseModel, Field

from openmemory.audit.schemas import AccessLogPage
from openmemory.memories.schemas import LABELS, History, MemoryRecord, Page, RecordModel
from openmemory.memories.state import State
from openmemory.operations.description import MemoryReference, Speaker, operation
from openmemory.operations.parameters import MEMORY_ID, Message, PageNumber, PageSize
from openmemory.serialization.omission import is_none
from openmemory.serialization.timestamps import EpochSeconds
from openmemory.stats.schemas import CategoryList

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "memories"
PATH = "/api/v1/memories"

_ID = "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e"
_ONE = {"memory_ids": [_ID], "user_id": "alice"}

OneMemory = Annotated[UUID, MemoryReference(), Field(description=MEMORY_ID)]


class MemoryResponse(RecordModel):
    """A memory in a list."""

    id: UUID
    content: str
    created_at: EpochSeconds = Field(description="Seconds since 1970.")
    updated_at: EpochSeconds = Field(description="Seconds since 1970.")
    state: State
    app_id: UUID = Field(description="The app that added it.")
    app_name: str
    categories: list[str]
    metadata_: dict[str, Any]
    namespace: str
    thread_id: str | None
    kind: str
    key: str | None
    importance: float | None
    expires_at: datetime | None
    revision: int
    text_app_name: str = Field(description="The app that wrote the present text; rules about that app hold for it.")
    labels: list[str] = Field(description=LABELS)


class MemoryPage(BaseModel):
    """One page of memories."""

    items: list[MemoryResponse]
    total: int
    page: int
    size: int
    pages: int
    note: str | None = Field(
        default=None, description="Says that the app is paused, if that is why the page is empty.", exclude_if=is_none
    )

    @classmethod
    def of(cls, page: Page, note: str | None = None) -> MemoryPage:
        """Returns the page as it is sent."""
        items = [MemoryResponse.of(record) for record in page.items]
        return cls.model_construct(
            items=items, total=page.total, page=page.page, size=page.size, pages=page.pages, note=note
        )


class MemoryDetail(BaseModel):
    """One memory by its id. Its content is called `text` here."""

    id: UUID
    text: str
    created_at: EpochSeconds = Field(description="Seconds since 1970.")
    state: State
    app_id: UUID = Field(description="The app that added it.")
    app_name: str
    categories: list[str]
    metadata_: dict[str, Any]
    namespace: str
    thread_id: str | None
    kind: str
    key: str | None
    importance: float | None
    expires_at: datetime | None
    revision: int
    valid_from: datetime | None = Field(description="Since when it holds; null: not said.")
    valid_until: datetime | None = Field(description="Until when it holds; null: not said.")
    superseded_by: UUID | None = Field(description="The memory that took its place.")
    text_app_name: str = Field(description="The app that wrote the present text; rules about that app hold for it.")
    labels: list[str] = Field(description=LABELS)

    @classmethod
    def of(cls, record: MemoryRecord) -> MemoryDetail:
        """Returns the detail view of a record."""
        same = {name: getattr(record, name) for name in cls.model_fields if name != "text"}
        return cls.model_construct(text=record.content, **same)


class Restored(Message):
    """The result, in words, and the memories that are active now."""

    memory_ids: list[UUID]


@operation("GET", f"{PATH}/categories", command="categories list", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404))
async def list_categories(services: Services, caller: Caller) -> CategoryList:
    """List the categories of a user's active and paused memories. Times are UTC without an offset."""
    return await services.stats.categories(caller)


@operation(
    "GET", f"{PATH}/{{memory_id}}", command="get", tool="get_memory", tag=TAG, speaker=Speaker.OWNER, owned="memory",
    errors=(403, 404, 409),
)  # fmt: skip
async def get_memory(services: Services, caller: Caller, *, memory_id: OneMemory) -> MemoryDetail:
    """Show one memory, in whatever state it is."""
    return MemoryDetail.of(await services.memories.get(caller, memory_id))


@operation(
    "GET", f"{PATH}/{{memory_id}}/history", command="history", tag=TAG, speaker=Speaker.OWNER, owned="memory",
    errors=(403, 404, 409),
)  # fmt: skip
async def get_history(services: Services, caller: Caller, *, memory_id: OneMemory) -> History:
    """Show every state and text of one memory, oldest first."""
    return await services.memories.history(caller, memory_id)


@operation(
    "GET", f"{PATH}/{{memory_id}}/related", command="related", tag=TAG, speaker=Speaker.OWNER, owned="memory",
    errors=(403, 404, 409),
)  # fmt: skip
async def list_related(
    services: Services, caller: Caller, *, memory_id: OneMemory, page: PageNumber = 1
) -> MemoryPage:  # fmt: skip
    """List the memories that share categories with one: five on a page, most shared categories first."""
    return MemoryPage.of(await services.memories.related(caller, memory_id, page=page))


@operation(
    "GET", f"{PATH}/{{memory_id}}/access-log", command="accesses", tag=TAG, speaker=Speaker.OWNER, owned="memory",
    errors=(403, 404, 409),
)  # fmt: skip
async def get_access_log(
    services: Services,
    caller: Caller,
    *,
    memory_id: OneMemory,
    page: PageNumber = 1,
    page_size: PageSize = 10,
    fold: Annotated[bool, Field(description="Show repeated accesses as one; false: each by itself.")] = True,
) -> AccessLogPage:
    """Show which apps accessed one memory: assistants first, newest first. Times are UTC without an offset. What the
    user themself reads is no access of an app; the audit log has it.

    A credential for some namespaces does not see queries that searched other namespaces: `metadata_` is empty there.
    """
    return await services.memories.access_log(caller, memory_id, page=page, page_size=page_size, fold=fold)


@operation(
    "POST", f"{PATH}/actions/restore", command="restore", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409, 413),
    body="RestoreBody", examples={"one": _ONE, "what was deleted last": {}},
)  # fmt: skip
async def restore_memories(
    services: Services,
    caller: Caller,
    *,
    memory_ids: Annotated[
        list[UUID] | None,
        MemoryReference(State.ACTIVE),
        Field(description="Left out: all that your last call deleted."),
    ] = None,
) -> Restored:
    """Makes memories active again, including deleted ones. All or none. Without `memory_ids`, all that your last
    deletion took away: of the user themself, or of the app of your credential."""
    if memory_ids is None:
        ids = await services.memories.restore_last(caller)
        return Restored(message=f"Successfully restored {len(ids)} memories", memory_ids=ids)
    count = await services.memories.restore(caller, memory_ids)
    return Restored(message=f"Successfully restored {count} memories", memory_ids=memory_ids)


@operation(
    "POST", f"{PATH}/actions/erase", command="erase", tag=TAG, speaker=Speaker.OWNER, errors=(403, 404, 409, 413),
    body="EraseBody", examples={"one": _ONE},
)  # fmt: skip
async def erase_memories(
    services: Services,
    caller: Caller,
    *,
    # Like a restore, this reaches every memory of the user, also an expired one.
    memory_ids: Annotated[list[UUID], MemoryReference(State.ACTIVE)],
) -> Message:
    """Deletes memories permanently, with their history, access log and vectors. All or none."""
    count = await services.memories.erase(caller, memory_ids)
    return Message(message=f"Successfully erased {count} memories")

"""The response and query types of both logs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field

from openmemory.serialization.timestamps import NaiveTime


class AccessLogEntry(BaseModel):
    """One access to a memory, or repeated ones: the newest, and how many there were."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    memory_id: UUID
    app_id: UUID | None = Field(description="Null: the user had no app of that name, and the credential only read.")
    accessed_at: NaiveTime
    access_type: str
    metadata_: dict[str, Any]
    app_name: str
    count: int = Field(description="1, or how many reads by this app followed within an hour of each other.")
    first_accessed_at: NaiveTime = Field(description="When the first of them was.")


class AccessLogPage(BaseModel):
    """A page of a memory's access log: assistants first, newest first. `total` counts the entries."""

    total: int
    page: int
    page_size: int
    logs: list[AccessLogEntry]


@dataclass(frozen=True, slots=True)
class LastExport:
    """The last export of a user's memories. `by` is the name of the credential."""

    at: datetime
    by: str


@dataclass(frozen=True, slots=True)
class AuditQuery:
    """A query of the audit log. `before`: only events with a smaller id; `denied`: only events that were not ok."""

    events: tuple[str, ...] = ()
    denied: bool = False
    since: datetime | None = None
    before: int | None = None
    limit: int = 100


class AuditEntry(BaseModel):
    """One thing that was done or denied. Memories are named by their ids; it holds no text of theirs."""

    model_config = ConfigDict(from_attributes=True)

    id: int
    at: datetime
    event: str = Field(description="What was done, such as `memory.search`.")
    result: str = Field(description="`ok`, or the code of the refusal.")
    principal: str = Field(description="Whose credential it was: `key:<id>`, `token:…`, `settings` or `local`.")
    principal_name: str
    door: str = Field(description="`rest` or `mcp`.")
    address: str | None = Field(description="The network address that it came from.")
    request: str | None = Field(description="The X-Request-ID, under which the log of the service tells more.")
    user_id: UUID | None
    user_name: str | None = Field(description="Null for nobody's events, and for a user who was erased.")
    app_name: str | None
    objects: list[UUID] | None = Field(description="What it was about, the first thousand.")
    count: int = Field(description="How many it was about.")
    detail: dict[str, Any] | None


class AuditPage(BaseModel):
    """Events, newest first. `next` is the `before` of the following page; null at the end."""

    events: list[AuditEntry]
    next: int | None

"""The shapes of the access log at the doors."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from pydantic import BaseModel, ConfigDict

from app.times import NaiveTime


class AccessLogEntry(BaseModel):
    """One access to a memory."""

    model_config = ConfigDict(from_attributes=True)

    id: UUID
    memory_id: UUID
    app_id: UUID
    accessed_at: NaiveTime
    access_type: str
    metadata_: dict[str, Any]
    app_name: str


class AccessLogPage(BaseModel):
    """A page of a memory's access log, newest first."""

    total: int
    page: int
    page_size: int
    logs: list[AccessLogEntry]

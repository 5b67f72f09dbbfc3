"""The response and query types of both logs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
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


class AuditAction(StrEnum):
    """The type of an action. The values are stored."""

    MEMORY_ADD = "memory.add"
    MEMORY_SEARCH = "memory.search"
    MEMORY_LIST = "memory.list"
    MEMORY_GET = "memory.get"
    MEMORY_EXPORT = "memory.export"
    MEMORY_IMPORT = "memory.import"
    MEMORY_UPDATE = "memory.update"
    MEMORY_PAUSE = "memory.pause"
    MEMORY_ARCHIVE = "memory.archive"
    MEMORY_EXPIRE = "memory.expire"
    MEMORY_LINK = "memory.link"
    MEMORY_UNLINK = "memory.unlink"
    MEMORY_DELETE = "memory.delete"
    MEMORY_DELETE_ALL = "memory.delete_all"
    MEMORY_RESTORE = "memory.restore"
    MEMORY_ERASE = "memory.erase"
    MEMORY_KEEP_BOTH = "memory.keep_both"
    MEMORY_ACCESS_LOG = "memory.access_log"
    USER_ERASE = "user.erase"
    USER_GET = "user.get"
    USER_TIMEZONE = "user.timezone"
    CATEGORY_LIST = "category.list"
    CATEGORY_DESCRIBE = "category.describe"
    CATEGORY_FORGET = "category.forget"
    STATS_READ = "stats.read"
    APP_LIST = "app.list"
    APP_GET = "app.get"
    APP_PAUSE = "app.pause"
    APP_RESUME = "app.resume"
    GRANT_LIST = "grant.list"
    GRANT_EXPLAIN = "grant.explain"
    GRANT_CREATE = "grant.create"
    GRANT_REVOKE = "grant.revoke"
    KEY_LIST = "key.list"
    KEY_CREATE = "key.create"
    KEY_REVOKE = "key.revoke"
    KEY_ROTATE = "key.rotate"
    CONFIG_READ = "config.read"
    CONFIG_CHANGE = "config.change"
    CONFIG_RESET = "config.reset"
    CONFIG_TEST = "config.test"
    CAPTURE_LIST = "capture.list"
    CAPTURE_GET = "capture.get"
    CAPTURE_ADD = "capture.add"
    CAPTURE_APPLY = "capture.apply"
    CAPTURE_IMPORT = "capture.import"
    CAPTURE_UNDO = "capture.undo"
    THREAD_ADD = "thread.add"
    THREAD_LIST = "thread.list"
    THREAD_READ = "thread.read"
    THREAD_CLOSE = "thread.close"
    THREAD_DELETE = "thread.delete"
    THREAD_EXPIRE = "thread.expire"
    THREAD_RESTORE = "thread.restore"
    THREAD_ERASE = "thread.erase"
    SESSION_SAVE = "session.save"
    SESSION_LIST = "session.list"
    SESSION_READ = "session.read"
    SLACK_SEND = "slack.send"
    PROJECT_REGISTER = "project.register"
    PROJECT_LIST = "project.list"
    PROJECT_USAGE = "project.usage"
    PROJECT_ANCHORS = "project.anchors"
    PROJECT_SHARE = "project.share"
    PROJECT_IMPORT = "project.import"
    PROJECT_CHECK = "project.check"
    PROJECT_MOVE = "project.move"
    PROJECT_DELETE = "project.delete"
    SOURCE_LIST = "source.list"
    SOURCE_IMPORT = "source.import"
    FILE_PLAN = "file.plan"
    FILE_STORE = "file.store"
    FILE_REMOVE = "file.remove"
    FILE_LIST = "file.list"
    DOCUMENT_STORE = "document.store"
    DOCUMENT_LIST = "document.list"
    DOCUMENT_READ = "document.read"
    DOCUMENT_DOWNLOAD = "document.download"
    DOCUMENT_DELETE = "document.delete"
    DOCUMENT_RESTORE = "document.restore"
    DOCUMENT_ERASE = "document.erase"
    PASSAGE_SEARCH = "passage.search"
    POLICY_LIST = "policy.list"
    POLICY_CREATE = "policy.create"
    POLICY_DELETE = "policy.delete"
    AUDIT_READ = "audit.read"
    INDEX_SYNC = "index.sync"
    INSTALLATION_DECIDE = "installation.decide"
    ACCESS_DENIED = "access.denied"
    """A request that the credential does not allow, or about another's object; `result` is the error's code."""
    CREDENTIAL_REFUSED = "credential.refused"
    """A credential that is wrong, expired or revoked."""

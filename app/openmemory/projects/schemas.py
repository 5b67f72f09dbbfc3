"""Requests and results of the state of a project, of values, and of links between memories."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date, datetime
from typing import Annotated, Any
from uuid import UUID

from pydantic import Field

from openmemory.memories.schemas import LABELS, Event
from openmemory.serialization.omission import is_none


@dataclass(frozen=True, slots=True)
class NewCheckpoint:
    """A state to save, and why.

    `expected_revision`: the revision that it replaces; 0: there must be none. `commit`: the one that is checked out, to
    which the reason belongs.
    """

    state: dict[str, Any]
    reason: str
    namespace: str = "default"
    thread_id: str | None = None
    expected_revision: int | None = None
    commit: str | None = None


@dataclass(slots=True)
class CheckpointSaved:
    """The state after a checkpoint."""

    id: Annotated[UUID, Field(description="The id of the state, which is a memory of the kind `state`.")]
    namespace: str
    revision: int
    event: Event
    memory_id: Annotated[UUID, Field(description="The memory of the kind `checkpoint` that holds the reason.")]
    size: Annotated[int, Field(description="The characters of the state as JSON.")]
    limit: Annotated[int, Field(description="The number of characters that it may have (limits.text).")]


@dataclass(slots=True)
class ProjectState:
    """The state of a project."""

    id: UUID
    namespace: str
    state: Annotated[dict[str, Any] | None, Field(description="null: it cannot be read as JSON; `note` says why.")]
    revision: int
    reason: str | None
    app_name: str
    updated_at: datetime
    labels: Annotated[list[str], Field(description=LABELS)]
    size: int
    limit: int
    note: Annotated[str | None, Field(exclude_if=is_none)] = None


@dataclass(slots=True)
class ChangedLeaf:
    """A value of a state that a checkpoint changed. null: it was not there."""

    path: Annotated[str, Field(description="The keys that lead to it, such as `database.host`.")]
    old: Any
    new: Any


@dataclass(slots=True)
class StateRevision:
    """One revision of a state, and what it changed."""

    revision: int
    reason: str | None
    app_name: str | None
    changed_at: datetime
    changes: list[ChangedLeaf]


@dataclass(slots=True)
class StateHistory:
    """The revisions of a state, the last first. An app sees its own and the current one."""

    id: UUID
    namespace: str
    revisions: list[StateRevision]


@dataclass(frozen=True, slots=True)
class NewValue:
    """A value to remember under a topic and a key."""

    topic: str
    key: str
    value: str
    namespace: str = "default"


@dataclass(slots=True)
class ValueSet:
    """The value that was set: ADD, UPDATE, or NONE if it was there already."""

    id: UUID
    event: Event
    revision: int


@dataclass(slots=True)
class StoredValue:
    """A value with its topic and key."""

    id: UUID
    topic: str
    key: str
    value: str
    namespace: str
    app_name: str
    revision: int
    created_at: datetime
    updated_at: datetime
    labels: Annotated[list[str], Field(description=LABELS)]


@dataclass(slots=True)
class ValuePage:
    """One page of values, by topic and key."""

    items: list[StoredValue]
    total: int
    page: int
    size: int


@dataclass(slots=True)
class ValueDeleted:
    """The value that was deleted. `restore` of memories brings it back."""

    id: UUID


@dataclass(slots=True)
class Linked:
    """A link between two memories: `from` is `rel` of `to`, such as "fixes" or "depends on"."""

    from_id: UUID
    rel: str
    to_id: UUID
    created: Annotated[bool, Field(description="False: there was such a link already.")]


@dataclass(slots=True)
class MemoryLinked:
    """A link of a memory, seen from it."""

    rel: str
    direction: Annotated[str, Field(description="`out`: from this memory to the other; `in`: from the other.")]
    id: Annotated[UUID, Field(description="The other memory.")]
    memory: str
    labels: Annotated[list[str], Field(description=LABELS)]
    created_at: datetime


@dataclass(slots=True)
class LinkList:
    """The links of a memory whose other end the caller may read, oldest first."""

    memory_id: UUID
    links: list[MemoryLinked]


@dataclass(slots=True)
class LinkRemoved:
    """The link is gone."""

    removed: bool = True


@dataclass(frozen=True, slots=True)
class NewProject:
    """A project to register. None leaves a field of one that is registered as it is."""

    namespace: str
    name: str | None = None
    root: str | None = None
    repo: str | None = None
    head: str | None = None
    branch: str | None = None


@dataclass(slots=True)
class RegisteredProject:
    """A project, and the number of what the caller may read of it."""

    namespace: str
    name: Annotated[str | None, Field(description="null: it is not registered, and only has contents.")]
    root: Annotated[str | None, Field(description="Its folder on the machine that registered it. Nobody opens it.")]
    repo: str | None
    head: str | None
    branch: str | None
    memories: Annotated[int, Field(description="Memories that are active.")]
    conversations: Annotated[int, Field(description="Conversations, and sessions.")]
    files: int
    documents: int
    updated_at: Annotated[datetime | None, Field(description="When it was registered last.")]


@dataclass(slots=True)
class ProjectList:
    """The projects of a user, by namespace."""

    projects: list[RegisteredProject]


@dataclass(slots=True)
class ProjectStatus:
    """A project with its state, and whether everything has its vector."""

    project: RegisteredProject
    state_revision: int | None
    state_reason: str | None
    pending: Annotated[int, Field(description="Items of the user that wait for their vector, of any project.")]


@dataclass(slots=True)
class ProjectDeleted:
    """The number of memories and passages that were deleted with a project."""

    namespace: str
    memories: int
    passages: int


@dataclass(slots=True)
class TokensGiven:
    """The tokens of context packs, counted."""

    calls: int
    items: Annotated[int, Field(description="Memories and passages in them.")]
    candidates: Annotated[int, Field(description="The full texts of everything that was found.")]
    used: Annotated[int, Field(description="What assistants were given.")]
    saved: Annotated[int, Field(description="`candidates` less `used`, where that is positive.")]
    truncated: Annotated[int, Field(description="What was cut from items that were given.")]
    dropped: Annotated[int, Field(description="The full texts of what did not fit.")]


@dataclass(slots=True)
class DayOfReads(TokensGiven):
    """The tokens of a day, by app and project."""

    day: date
    app_name: str
    namespace: str


@dataclass(slots=True)
class ReadReport:
    """The tokens that context packs gave, in all and by day, the last day first."""

    total: TokensGiven
    days: list[DayOfReads]


@dataclass(slots=True)
class ToolCalls:
    """Calls of MCP tools that were answered, counted."""

    calls: int
    items: Annotated[int, Field(description="The entries of the lists in the answers, such as results.")]
    used: Annotated[int, Field(description="The tokens of the answers.")]
    saved: Annotated[
        int,
        Field(description="The tokens by which the answers are shorter than as JSON, estimated by their lengths."),
    ]


@dataclass(slots=True)
class AppToolCalls(ToolCalls):
    """The calls of a tool by an app."""

    app_name: str
    tool: str


@dataclass(slots=True)
class DayOfTools(AppToolCalls):
    """The calls of a tool by an app in a project on a day."""

    day: date
    namespace: Annotated[
        str,
        Field(description="The project of the call or of its client; `default` where you may read nothing of it."),
    ]


@dataclass(slots=True)
class ToolReport:
    """The calls of MCP tools: in all, by app and tool, and by day, the last day first."""

    total: ToolCalls
    tools: list[AppToolCalls]
    days: list[DayOfTools]


@dataclass(slots=True)
class ProjectMoved:
    """A project under its new name."""

    namespace: str
    memories: Annotated[int, Field(description="The memories that were moved, in every state.")]
    passages: int
    repeated: Annotated[int, Field(description="Memories that were deleted, because the other project has their text.")]
    archived: Annotated[int, Field(description="States and values that the newer ones of the other project replace.")]
    files: Annotated[int, Field(description="Files that both had, of which the ones that were read later stay.")]


MAX_COMMITS = 5_000
"""The number of commits that a list shows and a report may hold."""


@dataclass(slots=True)
class CommitAnchor:
    """A commit that memories and messages belong to."""

    commit: str
    items: Annotated[int, Field(description="The number of memories and messages that name it as `metadata.commit`.")]
    reachable: Annotated[
        bool | None, Field(description="It is in the history of `head`; null: no client has compared them.")
    ]


@dataclass(slots=True)
class AnchorList:
    """The commits that memories and messages of a project belong to, compared with a checkout."""

    namespace: str
    head: str
    anchors: list[CommitAnchor]


@dataclass(slots=True)
class AnchorReport:
    """The number of commits that were kept."""

    namespace: str
    head: str
    reachable: int
    orphaned: int


@dataclass(slots=True)
class ProjectCheck:
    """One thing that is wrong with a project."""

    check: Annotated[str, Field(description="state, repeated, links, or anchors.")]
    problems: int
    repaired: bool
    detail: str


@dataclass(slots=True)
class CheckedProject:
    """A project, and what is wrong with it: nothing, if there are no checks."""

    namespace: str
    checks: list[ProjectCheck]

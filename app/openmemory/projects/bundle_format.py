"""A bundle: what a project shares, in the layout of Mempack's, so that either program reads the other's."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, ClassVar

from pydantic import ConfigDict, Field

from openmemory.errors import Invalid
from openmemory.memories.schemas import MemoryCreate, MemoryRecord
from openmemory.projects.anchors import COMMIT

SCHEMA = 1
"""The version of the layout."""

SHARED = "shared"
"""The field of a memory's metadata that names the bundle that it came from, and its id there."""

NOTE = "note"


_OPEN: ConfigDict = {"extra": "ignore"}
"""Fields that only other programs define are ignored."""


@dataclass(slots=True)
class BundleManifest:
    """Where a bundle comes from. `source_repo_id` stays the same for a project; an import replaces only its own."""

    __pydantic_config__: ClassVar[ConfigDict] = _OPEN

    source_repo_id: str
    schema_version: int = SCHEMA
    source_namespace: str | None = None
    exported_at: Annotated[datetime | None, Field(description="When something of it changed last.")] = None
    tool_version: str | None = None
    memory_count: int | None = None


@dataclass(slots=True)
class BundleMemory:
    """A memory in a bundle: the title is its first line, the summary the others."""

    __pydantic_config__: ClassVar[ConfigDict] = _OPEN

    source_id: str
    title: str
    summary: str = ""
    thread_id: str | None = None
    tags: list[str] = field(default_factory=list)
    entities: list[str] = field(default_factory=list)
    anchor_commit: str = ""
    created_at: datetime | None = None
    kind: str = NOTE
    key: str | None = None
    importance: float | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    expires_at: datetime | None = None
    metadata: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class BundleLink:
    """A link between two memories of a bundle, by their ids in it."""

    from_id: str
    rel: str
    to_id: str


@dataclass(slots=True)
class Bundle:
    """The memories, links and state of a project, without logs, rules and histories."""

    manifest: BundleManifest
    memories: list[BundleMemory] = field(default_factory=list)
    links: list[BundleLink] = field(default_factory=list)
    state: dict[str, Any] | None = None


@dataclass(slots=True)
class BundleImported:
    """The number of memories that an import added, changed, left alone and deleted."""

    namespace: str
    source_repo_id: str
    imported: int
    updated: int
    unchanged: int
    deleted: Annotated[int, Field(description="Memories of earlier imports that the bundle has no more (`replace`).")]
    kept: Annotated[int, Field(description="Values of the project itself, which the bundle does not overwrite.")]
    links: Annotated[int, Field(description="New links.")]
    state: Annotated[str, Field(description="saved, unchanged, kept (the project has its own), or none.")]


def packed(record: MemoryRecord) -> BundleMemory:
    """A memory as a bundle holds it."""
    title, _, summary = record.content.partition("\n")
    metadata = {name: value for name, value in record.metadata_.items() if name != SHARED}
    lists = dict[str, list[str]]()
    for name in ("tags", "entities"):
        names = metadata.get(name)
        if isinstance(names, list) and all(isinstance(one, str) for one in names):
            lists[name] = metadata.pop(name)
    commit = metadata.pop(COMMIT) if isinstance(metadata.get(COMMIT), str) else ""
    return BundleMemory(
        str(record.id), title, summary, record.thread_id, **lists, anchor_commit=commit, metadata=metadata,
        created_at=record.created_at, kind=record.kind, key=record.key, importance=record.importance,
        valid_from=record.valid_from, valid_until=record.valid_until, expires_at=record.expires_at,
    )  # fmt: skip


def unpacked(one: BundleMemory, namespace: str, source: str) -> MemoryCreate:
    """A memory of a bundle as it is to be stored.

    Raises:
        Invalid: its id is missing.
    """
    if not one.source_id.strip():
        raise Invalid("source_id", "must not be blank")
    metadata = dict(one.metadata)
    for name in ("tags", "entities"):
        if value := getattr(one, name):
            metadata[name] = value
    if one.anchor_commit:
        metadata[COMMIT] = one.anchor_commit
    metadata[SHARED] = {"from": source, "id": one.source_id}
    return MemoryCreate(
        f"{one.title}\n{one.summary}" if one.summary else one.title, metadata, namespace, one.thread_id or None,
        one.kind, one.key, one.importance, created_at=one.created_at, valid_from=one.valid_from,
        valid_until=one.valid_until, expires_at=one.expires_at,
    )  # fmt: skip

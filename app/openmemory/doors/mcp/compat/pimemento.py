"""Tools with the names, arguments and texts of Pimemento. Offered by the toolset `pimemento`, alone.

A `client_id` is a project, and so a namespace: `_default` means that of the client, or else the user's own. The type of
an entry is the kind of a memory. `namespace`, `user_id`, `reason` and `source_mcp` are fields of its metadata: they
sort the memories of one user, and give access to nothing. Texts are merged across apps, types and categories.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import groupby
from typing import Annotated, Any
from uuid import UUID
from zoneinfo import ZoneInfo

from mcp_types import ToolAnnotations
from pydantic import BeforeValidator, Field

from openmemory.dedup.key_values import FACTS, parsed
from openmemory.dedup.scope import PIMEMENTO
from openmemory.doors.mcp.compact import block, inline
from openmemory.doors.mcp.tool import Answer, Arguments, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import Invalid
from openmemory.memories.schemas import Event, MemoryCreate, MemoryQuery, MemoryRecord, MemoryRowAdded
from openmemory.memories.state import State
from openmemory.search.answers.conflicts import conflicts
from openmemory.search.query import filters
from openmemory.search.schemas import SearchQuery, SearchResult, Statement
from openmemory.serialization import exact_json
from openmemory.serialization.zones import day_shown
from openmemory.services import Services

TYPES = PIMEMENTO.kinds
CATEGORIES = (
    "business_context", "project_config", "user_preference", "domain_context", "analysis_context", "content_strategy",
)  # fmt: skip
"""The categories that are recommended. Other ones begin with `x_`."""

MAX_REASON, MAX_QUERY, MAX_METADATA = 300, 500, 5_000
MAX_LISTED, MAX_FOUND = 100, 50

_CLIENT, _USER, _NAMESPACE = "_default", "_anonymous", "general"
_ID = re.compile(r"[a-zA-Z0-9_][a-zA-Z0-9._-]{0,99}")
_SHOWN = 5
"""The namespaces and categories that a status counts one by one."""


def _as_text(value: Any) -> Any:
    """Reads an argument that is JSON text. Some models send the value itself."""
    return exact_json.dumps(value).decode() if isinstance(value, dict | list) else value


class ClientArguments(Arguments):
    projects = ()  # a client_id has a grammar of its own

    client_id: str = Field(_CLIENT, description="A project; default: this one.")
    user_id: str = ""
    namespace: str = Field("", description="A part of the project.")

    def ids(self, call: ToolCall[Any]) -> Ids:
        """Returns the ids that the arguments name.

        Raises:
            Invalid: one is no id.
        """
        client = _check_id("client_id", self.client_id) or _CLIENT
        namespace = call.offer.project.target(None if client == _CLIENT else client)
        user, part = _check_id("user_id", self.user_id), _check_id("namespace", self.namespace).lower()
        return Ids(client, namespace, user, part)


class SaveMemoryArguments(ClientArguments):
    category: str = Field(description=f"{', '.join(CATEGORIES)}, or x_ and a name.")
    type: str = Field(description=f"{', '.join(TYPES)}.")
    content: str = Field(description="key=value | key=value")
    reason: str = Field(description="Why, in a short sentence.")
    source_mcp: str = ""
    ttl_days: int = Field(0, description="0: for good.")
    metadata: Annotated[str, BeforeValidator(_as_text)] = Field("", description="A JSON object.")


class GetMemoryArguments(ClientArguments):
    category: str = ""
    type: str = ""
    limit: int = 20


class SearchEntriesArguments(ClientArguments):
    query: str = Field(description="A question, or keywords.")
    limit: int = 10


class DeleteMemoryArguments(ClientArguments):
    content_match: str = Field(description="A key, or other words of the content.")
    category: str = ""


@dataclass(frozen=True, slots=True)
class Ids:
    """The client that a call names, the namespace of ours that it means, and the user and the part of it; empty: any.

    Usage: `MemoryQuery(namespaces=(ids.project,), metadata=ids.fields)`.
    """

    client: str
    project: str
    user: str
    part: str

    @property
    def fields(self) -> dict[str, str]:
        """The metadata of the entries that are meant."""
        values = {"user_id": self.user, "namespace": self.part}
        return {name: value for name, value in values.items() if value}


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory as an entry of Pimemento."""

    id: UUID
    memory: str
    kind: str
    categories: Sequence[str]
    metadata: Mapping[str, Any]
    app_name: str
    labels: Sequence[str]
    namespace: str
    updated_at: datetime
    expires_at: datetime | None

    @classmethod
    def of(cls, memory: MemoryRecord | SearchResult) -> Entry:
        """The entry of a memory that was listed or found."""
        if isinstance(memory, MemoryRecord):
            text, metadata, app = memory.content, memory.metadata_, memory.text_app_name
        else:
            text, metadata, app = memory.memory, memory.metadata, memory.app_name
        return cls(
            memory.id, text, memory.kind, memory.categories, metadata, app, memory.labels, memory.namespace,
            memory.updated_at, memory.expires_at,
        )  # fmt: skip

    def metadata_name(self, field: str) -> str:
        """A name in the metadata, where a client may have stored anything; empty if there is none."""
        value = self.metadata.get(field)
        return value[:100] if isinstance(value, str) else ""

    @property
    def user(self) -> str:
        """The user that saved it; empty if nobody was named."""
        return "" if self.metadata_name("user_id") == _USER else self.metadata_name("user_id")


async def _save(services: Services, call: ToolCall[SaveMemoryArguments]) -> Answer:
    arguments = call.arguments
    ids = arguments.ids(call)
    type_, category = arguments.type.strip().lower(), arguments.category.strip().lower()
    content, reason = arguments.content.strip(), arguments.reason.strip()[:MAX_REASON]
    if type_ not in TYPES:
        raise _InvalidArgument(f"type '{inline(type_)[:40]}' invalid. Accepted: {', '.join(TYPES)}")
    if not category:
        raise _InvalidArgument(f"category required. Recommended: {', '.join(CATEGORIES)}")
    for name, text in (("content", content), ("reason", reason)):
        if not text:
            raise _InvalidArgument(f"{name} required.")
    own = _object(arguments.metadata)
    most = services.settings.mcp.max_content
    warnings = list(_warnings(category, content, most))
    content = content[:most]
    facts = parsed(content)
    if facts is not None:
        content = " | ".join(f"{key}={value}" for key, value in facts.items())
        own |= {FACTS: facts}
    own |= {"namespace": ids.part or _NAMESPACE, "user_id": ids.user or _USER, "reason": reason}
    own |= {"source_mcp": source[:100]} if (source := arguments.source_mcp.strip()) else {}
    new = MemoryCreate(
        content, metadata=own, namespace=ids.project, kind=type_, categories=(category,),
        ttl_days=arguments.ttl_days if arguments.ttl_days > 0 else None,
    )  # fmt: skip
    memory = services.memories.intake.created(new, "content")
    row = await services.memories.add(call.caller, memory, policy=services.merging, explicit=True)
    untrusted = Untrusted(services.settings.capture.injection)
    metadata = {"namespace": _NAMESPACE, "user_id": _USER} | row.metadata_
    if row.event is Event.NONE and any(metadata[field] != own[field] for field in ("namespace", "user_id")):
        part, user = (_value(str(metadata[field])[:100], untrusted) for field in ("namespace", "user_id"))
        raise _InvalidArgument(
            f"the same content is kept for namespace '{part}' and user '{user}' already. Add what differs."
        )
    merged = None if row.event is Event.ADD else _describe_merge(row, content, ids, untrusted, call.caller.timezone)
    verb = "Saved" if merged is None else f"Updated ({merged})"
    warned = "".join(f" ({one})" for one in warnings)
    note = row.note if merged is None else None
    return _answer([f"{verb}.{warned}", f"{inline(category)} | {type_}"], untrusted, note)


def _warnings(category: str, content: str, most: int) -> Iterable[str]:
    if category not in CATEGORIES and not category.startswith("x_"):
        yield f"category '{inline(category)}' non-standard -- use x_ prefix for custom"
    if "=" not in content:
        yield "no key=value detected -- recommended format: key=value | key=value"
    if len(content) > most:
        yield f"truncated from {len(content):,} to {most:,} chars"


def _describe_merge(row: MemoryRowAdded, content: str, ids: Ids, untrusted: Untrusted, zone: ZoneInfo) -> str:
    """Describes a merge: with the entry of the same keys, with the values that changed, or a similar one."""
    shared = sorted((parsed(content) or {}).keys() & (parsed(row.previous_memory or row.content) or {}).keys())
    if not shared:
        likeness = max((one.likeness for one in row.possible_duplicates), default=1.0)
        return f"semantic: {likeness:.2f}"
    summary = f"keys: {', '.join(shared)}"
    groups = groupby(row.changed, lambda one: (ids.user or one.was.app, day_shown(one.was.at, zone)))
    changes = [
        f"{', '.join(f'{one.key} {_value(one.old, untrusted)}->{_value(one.new, untrusted)}' for one in some)}"
        f" (was @{_value(user, untrusted)} {day})"
        for (user, day), some in groups
    ]
    return f"{summary} | changed: {', '.join(changes)}" if changes else summary


async def _get(services: Services, call: ToolCall[GetMemoryArguments]) -> Answer:
    arguments = call.arguments
    ids = arguments.ids(call)
    query = _query(ids, arguments.category, arguments.type)
    limit = max(1, min(arguments.limit, MAX_LISTED))
    memories, _ = await services.memories.slice(call.caller, query, offset=0, limit=limit)
    untrusted = Untrusted(services.settings.capture.injection)
    if not memories:
        return _nothing(ids, untrusted, await services.memories.paused_note(call.caller))
    entries = [Entry.of(one) for one in memories]
    zone = call.caller.timezone
    lines = [f"Memory '{ids.client}' ({len(entries)}):", *(_line(one, untrusted, zone, ttl=True) for one in entries)]
    return _answer([*lines, *_conflict_lines(entries, untrusted, zone)], untrusted)


async def _search(services: Services, call: ToolCall[SearchEntriesArguments]) -> Answer:
    arguments = call.arguments
    ids = arguments.ids(call)
    query_text = arguments.query.strip()[:MAX_QUERY]
    if not query_text:
        raise _InvalidArgument("query required.")
    fields = {f"metadata.{name}": value for name, value in ids.fields.items()}
    limit = max(1, min(arguments.limit, MAX_FOUND))
    query = SearchQuery(query_text, limit=limit, namespaces=(ids.project,), filter=filters.parsed(fields))
    answer = await services.search.search(call.caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    if not answer.results:
        return _answer([f"No results for '{inline(query_text)}'."], untrusted, answer.note)
    entries = [Entry.of(one) for one in answer.results]
    zone = call.caller.timezone
    lines = [f"Search '{inline(query_text)}' ({len(entries)} results):"]
    for one, entry in zip(answer.results, entries, strict=True):
        score = "match" if one.score is None or one.score >= 1 else f"{one.score:.2f}"
        lines.append(f"[{score}] {_line(entry, untrusted, zone)}")
    return _answer([*lines, *_conflict_lines(entries, untrusted, zone)], untrusted, answer.note)


async def _delete(services: Services, call: ToolCall[DeleteMemoryArguments]) -> Answer:
    arguments = call.arguments
    ids = arguments.ids(call)
    pattern = arguments.content_match.strip()
    if not pattern:
        raise _InvalidArgument("content_match required.")
    query = _query(ids, arguments.category, text=pattern)
    memories, _ = await services.memories.slice(call.caller, query, offset=0, limit=1)
    untrusted = Untrusted(services.settings.capture.injection)
    if not memories:
        return _answer([f"No entry containing '{inline(pattern)[:MAX_QUERY]}' found."], untrusted)
    await services.memories.change_state(call.caller, [memories[0].id], State.DELETED)
    return _answer([f"Deleted: {block(untrusted.text(memories[0].content, memories[0].labels))}"], untrusted)


async def _status(services: Services, call: ToolCall[ClientArguments]) -> Answer:
    ids = call.arguments.ids(call)
    extent = await services.stats.extent(call.caller, _query(ids), "namespace")
    untrusted = Untrusted(services.settings.capture.injection)
    if extent.oldest is None or extent.newest is None:
        return _nothing(ids, untrusted)
    parts = [f"'{ids.client}': {extent.total} entries"]
    for name, counts in (("ns", extent.parts), ("cat", extent.categories)):
        if counts:
            some = [f"{_value(one[:100], untrusted)} {number}" for one, number in list(counts.items())[:_SHOWN]]
            parts.append(f"{name}: {', '.join(some)}{f' +{len(counts) - _SHOWN}' if len(counts) > _SHOWN else ''}")
    first, last = (day_shown(at, call.caller.timezone) for at in (extent.oldest, extent.newest))
    parts.append(f"{first} -> {last}")
    parts += [f"{extent.expiring} with TTL"] if extent.expiring else []
    return _answer([" | ".join(parts)], untrusted)


class _InvalidArgument(Invalid):
    """An argument that Pimemento refuses, in its words."""

    def __init__(self, words: str) -> None:
        super().__init__("", words)
        self.message = words


def _query(ids: Ids, category: str = "", type_: str = "", text: str | None = None) -> MemoryQuery:
    """The entries that are meant, those first that were changed last."""
    category, type_ = category.strip().lower(), type_.strip().lower()
    return MemoryQuery(
        text=text, namespaces=(ids.project,), kinds=(type_,) if type_ else (),
        categories=(category,) if category else (), metadata=ids.fields, sort="updated_at",
    )  # fmt: skip


def _check_id(field: str, value: str) -> str:
    value = value.strip()
    if value and not _ID.fullmatch(value):
        raise Invalid(field, "must start with a letter, a digit or _ and contain only [a-zA-Z0-9._-] (max 100 chars)")
    return value


def _object(text: str) -> dict[str, Any]:
    """Reads the metadata.

    Raises:
        Invalid: they are no JSON object, or too large.
    """
    if not text.strip():
        return {}
    if (size := len(text.encode())) > MAX_METADATA:
        raise _InvalidArgument(f"metadata too large ({size:,} bytes, max {MAX_METADATA:,})")
    try:
        metadata = exact_json.loads(text)
    except (ValueError, RecursionError):
        raise _InvalidArgument("invalid metadata JSON") from None
    if not isinstance(metadata, dict):
        raise _InvalidArgument(f"metadata must be a JSON object, got {type(metadata).__name__}")
    return metadata


def _line(entry: Entry, untrusted: Untrusted, zone: ZoneInfo, *, ttl: bool = False) -> str:
    part = _value(entry.metadata_name("namespace") or _NAMESPACE, untrusted)
    topics = _value(",".join(entry.categories) or "-", untrusted)
    remaining = f" [{(entry.expires_at - datetime.now(UTC)).days}d]" if ttl and entry.expires_at else ""
    user = f" @{_value(entry.user, untrusted)}" if entry.user else ""
    text = block(untrusted.text(entry.memory, entry.labels))
    kind = _value(entry.kind, untrusted).upper()
    return f"{day_shown(entry.updated_at, zone)} {kind} | {part}/{topics} | {text}{remaining}{user}"


def _conflict_lines(entries: Sequence[Entry], untrusted: Untrusted, zone: ZoneInfo) -> list[str]:
    """The keys to which the entries give different values, after a line of dashes."""
    users = {one.id: one.user or one.app_name for one in entries}

    def format_statement(one: Statement) -> str:
        return f"{_value(one.value, untrusted)} ({day_shown(one.at, zone)} @{_value(users[one.id], untrusted)})"

    lines = [
        f"CONFLICT {one.key}: current={format_statement(one.current)}, previous={format_statement(one.previous[0])}"
        for one in conflicts(entries)
    ]
    return ["---", *lines] if lines else []


def _value(name: str, untrusted: Untrusted) -> str:
    return inline(untrusted.name(name))


def _nothing(ids: Ids, untrusted: Untrusted, note: str | None = None) -> Answer:
    return _answer([f"No memory for '{ids.client}'."], untrusted, note)


def _answer(lines: Sequence[str], untrusted: Untrusted, note: str | None = None) -> Answer:
    text = "\n".join(lines)
    return Answer(lines, {"result": text}, untrusted.note(note), text)


_READS = ToolAnnotations(read_only_hint=True)

TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "save_memory", "Save", "Keep context for later sessions. What has the same keys or meaning is merged.",
        SaveMemoryArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True),
        _save, "Error", toolset="pimemento",
    ),
    Tool(
        "get_memory", "Load", "Load what is kept, newest first. Call it when a session begins.",
        GetMemoryArguments, _READS, _get, "Error", toolset="pimemento",
    ),
    Tool(
        "search_memory", "Search", "Find what is kept by meaning and by words.",
        SearchEntriesArguments, _READS, _search, "Error", toolset="pimemento",
    ),
    Tool(
        "delete_memory", "Delete", "Delete the newest entry that contains the words.",
        DeleteMemoryArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True),
        _delete, "Error", toolset="pimemento",
    ),
    Tool(
        "memory_status", "Status", "Say in a line how much is kept, without its content.",
        ClientArguments, _READS, _status, "Error", toolset="pimemento",
    ),
)  # fmt: skip
"""The tools of Pimemento."""

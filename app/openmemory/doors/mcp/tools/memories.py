"""Tools that list, correct, remove and restore memories."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.doors.mcp.compact import block, memory_line, unusual
from openmemory.doors.mcp.tool import Answer, Arguments, Id, JsonObject, Reference, Strings, Time, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import Invalid, NotFound
from openmemory.memories.schemas import Event, MemoryQuery, MemoryRecord, MemoryUpdate
from openmemory.memories.state import State
from openmemory.serialization import exact_json
from openmemory.services import Services

LISTED = 50
"""The number of memories that one call lists by default."""

MAX_LISTED = 1_000
"""The maximum number of memories that one call lists: more would fill the model's context and help nobody."""


class ListArguments(Arguments):
    limit: int = Field(LISTED, description=f"1 to {MAX_LISTED}.")
    offset: int = 0
    namespace: str | None = None


class ListedMemory(BaseModel):
    id: Id
    memory: str
    hash: str
    metadata: dict[str, Any]
    created_at: Time
    updated_at: Time
    user_id: str
    categories: list[str]
    namespace: str
    app_name: str
    labels: list[str]


class IdsArguments(Arguments):
    memory_ids: Strings


class RestoreArguments(Arguments):
    memory_ids: Strings | None = Field(None, description="Left out: what you deleted last.")


class DeleteAllArguments(Arguments):
    confirm: bool = Field(False, description="true, once the user has agreed.")


class UpdateArguments(Arguments):
    memory_id: Reference
    text: str = Field(description="What it should say.")
    metadata: JsonObject | None = Field(None, description="Replaces what is kept with it.")


class UpdatedMemory(BaseModel):
    id: Id
    memory: str
    event: Event
    previous_memory: str
    revision: int


async def _list(services: Services, call: ToolCall[ListArguments]) -> Answer:
    arguments = call.arguments
    if not 1 <= arguments.limit <= MAX_LISTED:
        raise Invalid("limit", f"must be from 1 to {MAX_LISTED:,}, not {arguments.limit:,}")
    if not 0 <= arguments.offset <= 10_000_000:
        raise Invalid("offset", f"must be from 0 to 10,000,000, not {arguments.offset:,}")
    query = MemoryQuery(namespaces=call.offer.project.read(arguments.namespace))
    items, total = await services.memories.slice(call.caller, query, offset=arguments.offset, limit=arguments.limit)
    untrusted = Untrusted(services.settings.capture.injection)
    outputs = [_to_output(item, call.caller.user, untrusted) for item in items]
    short = await services.short_ids.shortened(call.caller, [item.id for item in items])
    zone = call.caller.timezone
    lines = [
        memory_line(
            short[item.id],
            item,
            output.app_name,
            output.memory,
            unusual(item, call.offer.project.implicit(arguments.namespace), output.namespace, zone),
            zone=zone,
        )
        for item, output in zip(items, outputs, strict=True)
    ]
    end = arguments.offset + len(items)
    part = (
        f"{arguments.offset + 1} to {end} of {_count_memories(total)}" if items else f"None of {_count_memories(total)}"
    )
    more = f"{part}; go on with offset={end}." if items and end < total else None
    data = [one.model_dump(mode="json") for one in outputs]
    paused = None if total else await services.memories.paused_note(call.caller)
    return Answer(
        lines if more else [*lines, f"{part}, newest first."],
        {"result": data, "total": total},
        untrusted.note(more or paused),
        exact_json.dumps(data).decode(),  # OpenMemory's array
    )


async def _delete(services: Services, call: ToolCall[IdsArguments]) -> Answer:
    count = await _change_state(services, call, State.DELETED, call.arguments.memory_ids)
    return _text_answer(f"Successfully deleted {count} memories")


async def _delete_all(services: Services, call: ToolCall[DeleteAllArguments]) -> Answer:
    # OpenMemory's own clients know no argument. What is deleted can be restored.
    if not (call.arguments.confirm or call.offer.legacy):
        number = await services.memories.count(call.caller)
        question = f"Delete all {_count_memories(number)} that this app can see?"
        if call.ask is None:
            raise Invalid(
                "confirm",
                f"nothing was deleted. This would delete {_count_memories(number)}",
                code="not_confirmed",
                hint="Ask the user, and call again with confirm=true if they agree.",
            )
        if not await call.ask(question):
            return _text_answer("Nothing was deleted: the user did not agree.")
    count = await services.memories.delete_all(call.caller)
    return replace(_text_answer("Successfully deleted all memories"), note=f"Deleted {_count_memories(count)}.")


async def _restore(services: Services, call: ToolCall[RestoreArguments]) -> Answer:
    if call.arguments.memory_ids is None:
        ids = await services.memories.restore_last(call.caller)
        short = await services.short_ids.shortened(call.caller, ids)
        answer = _text_answer(f"Successfully restored {len(ids)} memories: {', '.join(map(str, ids))}")
        return replace(answer, lines=[f"Successfully restored {len(ids)} memories: {', '.join(short.values())}"])
    count = await _change_state(services, call, State.ACTIVE, call.arguments.memory_ids)
    return _text_answer(f"Successfully restored {count} memories")


async def _update(services: Services, call: ToolCall[UpdateArguments]) -> Answer:
    arguments = call.arguments
    [memory_id] = await services.short_ids.resolved(call.caller, [arguments.memory_id], "memory_id")
    change = MemoryUpdate(text=arguments.text, metadata=arguments.metadata)
    updated = await services.memories.update(call.caller, memory_id, change)
    untrusted = Untrusted()
    memory, replaced = updated
    result = UpdatedMemory(
        id=memory.id,
        memory=memory.content,
        event=updated.event,
        previous_memory=untrusted.text(replaced.content, replaced.labels),
        revision=memory.revision,
    )
    short = await services.short_ids.shortened(call.caller, [memory.id])
    lines = [f"{updated.event} {short[memory.id]}", f"before: {block(result.previous_memory)}"]
    return Answer(lines, {"results": [result.model_dump(mode="json")]}, untrusted.note())


async def _change_state(services: Services, call: ToolCall[Any], target: State, id_texts: list[str]) -> int:
    """Moves the memories to a state and returns how many were changed. Fails with OpenMemory's message if the caller
    may change none."""
    with suppress(NotFound):
        ids = await services.short_ids.resolved(call.caller, id_texts, "memory_ids", target)
        if ids:
            return await services.memories.change_state(call.caller, ids, target, strict=False)
    raise NotFound("No accessible memories found with provided IDs", code="memory_not_found")


def _count_memories(number: int) -> str:
    return "1 memory" if number == 1 else f"{number} memories"


def _to_output(record: MemoryRecord, user: str, untrusted: Untrusted) -> ListedMemory:
    app = untrusted.name(record.text_app_name)
    return ListedMemory(
        id=record.id, memory=untrusted.text(record.content, record.labels), hash=record.hash,
        metadata=_as_mem0(untrusted.metadata(record.metadata_, record.labels), app), created_at=record.created_at,
        updated_at=record.updated_at, user_id=user,
        categories=[untrusted.name(category) for category in record.categories],
        namespace=untrusted.name(record.namespace), app_name=app, labels=record.labels,
    )  # fmt: skip


def _as_mem0(metadata: dict[str, Any], app: str) -> dict[str, Any]:
    """Returns the metadata with the fields that mem0 added to every memory: which program wrote it, for which of its
    clients."""
    return {"source_app": "openmemory", "mcp_client": app} | metadata


def _text_answer(text: str) -> Answer:
    return Answer([text], {"result": text}, text=text)


WRITES = ToolAnnotations(read_only_hint=False, destructive_hint=False)
REMOVES = ToolAnnotations(read_only_hint=False, destructive_hint=True)

TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "list_memories", "List memories",
        "List memories, newest first. To answer a question use search_memory.",
        ListArguments, ToolAnnotations(read_only_hint=True),
        _list, "Error getting memories",
    ),
    Tool(
        "update_memory", "Correct a memory",
        "Replace the text of a memory that has become wrong. Its history keeps the old text.",
        UpdateArguments, WRITES, _update, "Error updating memory",
    ),
    Tool(
        "delete_memories", "Forget memories",
        "Delete memories that the user wants forgotten. restore_memories brings them back.",
        IdsArguments, REMOVES, _delete, "Error deleting memories",
    ),
    Tool(
        "delete_all_memories", "Forget everything",
        "Delete every memory that this app can see. Only when the user explicitly asks for that.",
        DeleteAllArguments, REMOVES, _delete_all, "Error deleting memories",
    ),
    Tool(
        "restore_memories", "Restore memories",
        "Bring back memories that you have deleted.",
        RestoreArguments, WRITES, _restore, "Error restoring memories",
    ),
)  # fmt: skip

"""Tools for projects, and for values under a topic and a key. Offered by the toolset `projects`.

Their names, arguments and JSON answers are those of DevMemory. A project is a namespace.
"""

from __future__ import annotations

from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.doors.mcp.compact import block, further, inline, listing
from openmemory.doors.mcp.compat.devmemory.answers import not_found, search_results
from openmemory.doors.mcp.tool import Answer, Arguments, Id, Time, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import NotFound
from openmemory.memories.intake import KEYED
from openmemory.memories.schemas import Event
from openmemory.projects.schemas import NewProject, NewValue, RegisteredProject, StoredValue
from openmemory.projects.singletons import value_parts
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services

_PAGE = 50


class RegisterArguments(Arguments):
    projects = ("id",)

    id: str = Field(description="The project: a namespace.")
    name: str
    root_path: str | None = None


class NoArguments(Arguments):
    pass


class StatusArguments(Arguments):
    project_id: str


class SetArguments(Arguments):
    project_id: str = Field(description="The project: a namespace.")
    topic: str
    key: str
    value: str


class KeyArguments(Arguments):
    project_id: str
    topic: str
    key: str


class ListValuesArguments(Arguments):
    project_id: str
    topic: str | None = None
    page: int = Field(1, description=f"{_PAGE} a page.")


class SearchValuesArguments(Arguments):
    project_id: str
    query: str = Field(description="A question, or keywords.")
    limit: int | None = Field(None, description="10 by default.")


class ValueOutput(BaseModel):
    id: Id
    project_id: str
    topic: str
    key: str
    value: str
    created_by: str
    created_at: Time
    updated_at: Time


async def _register(services: Services, call: ToolCall[RegisterArguments]) -> Answer:
    arguments = call.arguments
    new = NewProject(arguments.id, arguments.name, arguments.root_path)
    project = await services.projects.register(call.caller, new)
    untrusted = Untrusted(services.settings.capture.injection)
    message = f"Project registered: {inline(project.name or '')} ({inline(arguments.id)})"
    return Answer([message], _project(project, untrusted), text=message)


async def _projects(services: Services, call: ToolCall[NoArguments]) -> Answer:
    page = await services.projects.list(call.caller)
    untrusted = Untrusted(services.settings.capture.injection)
    outputs = [_project(one, untrusted) for one in page.projects]
    lines = [
        f"{inline(one['id'])}: {inline(one['name'])} ({one['memory_count']} memories, {one['session_count']}"
        f" conversations, {one['file_count']} files, {one['document_count']} documents)"
        for one in outputs
    ]
    lines = lines or ["There are no projects that you may read."]
    return Answer(lines, {"results": outputs}, untrusted.note(), outputs)


async def _status(services: Services, call: ToolCall[StatusArguments]) -> Answer:
    status = await services.projects.status(call.caller, call.arguments.project_id)
    untrusted = Untrusted(services.settings.capture.injection)
    one = _project(status.project, untrusted)
    waiting = "ready" if not status.pending else f"{status.pending} waiting"
    state = "none" if status.state_revision is None else f"revision {status.state_revision}"
    lines = [f"{key}: {inline(str(value))}" for key, value in one.items() if value not in (None, "")]
    data = {
        "project": {key: one[key] for key in ("id", "name", "root_path")}, "memory_count": one["memory_count"],
        "session_count": one["session_count"], "embedding_status": waiting, "state_revision": status.state_revision,
    }  # fmt: skip
    return Answer([*lines, f"state: {state}", f"vectors: {waiting}"], data, untrusted.note())


def _project(one: RegisteredProject, untrusted: Untrusted) -> dict[str, Any]:
    return {
        "id": untrusted.name(one.namespace), "name": untrusted.name(one.name or one.namespace),
        "root_path": one.root and untrusted.name(one.root), "memory_count": one.memories,
        "session_count": one.conversations, "file_count": one.files, "document_count": one.documents,
    }  # fmt: skip


async def _set_value(services: Services, call: ToolCall[SetArguments]) -> Answer:
    arguments = call.arguments
    result = await services.values.set(
        call.caller, NewValue(arguments.topic, arguments.key, arguments.value, arguments.project_id)
    )
    name = f"{inline(arguments.topic)}/{inline(arguments.key)}"
    status = "unchanged" if result.event is Event.NONE else "set"
    data = {"id": str(result.id), "event": result.event.value, "revision": result.revision}
    # Its vector follows in a moment, unless the model or the index is away.
    embedded = "yes" if services.spaces.serving.answers else "no"
    return Answer([f"Memory {status}: {name}"], data, text=f"Memory set: {name} (embedded: {embedded})")


async def _get(services: Services, call: ToolCall[KeyArguments]) -> Answer:
    arguments = call.arguments
    try:
        value = await services.values.get(call.caller, arguments.topic, arguments.key, [arguments.project_id])
    except NotFound:
        return not_found(f"There is no value {inline(arguments.topic)}/{inline(arguments.key)} that you may read.")
    untrusted = Untrusted(services.settings.capture.injection)
    output = _output(value, untrusted)
    return Answer([_line(output)], output.model_dump(mode="json"), untrusted.note())


async def _list(services: Services, call: ToolCall[ListValuesArguments]) -> Answer:
    arguments = call.arguments
    page = await services.values.list(
        call.caller, namespaces=[arguments.project_id], topic=arguments.topic, page=arguments.page, size=_PAGE
    )
    untrusted = Untrusted(services.settings.capture.injection)
    outputs = [_output(one, untrusted) for one in page.items]
    lines = listing([_line(one) for one in outputs], page, "There are no values that you may read.")
    results = [one.model_dump(mode="json") for one in outputs]
    return Answer(lines, {"results": results, "total": page.total}, untrusted.note(further(page)), results)


async def _search(services: Services, call: ToolCall[SearchValuesArguments]) -> Answer:
    arguments = call.arguments
    query = SearchQuery(arguments.query, limit=arguments.limit, namespaces=(arguments.project_id,), kinds=(KEYED,))
    answer = await services.search.search(call.caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    results: list[dict[str, Any]] = []
    for one in answer.results:
        topic, key, value = value_parts(one.key, one.memory)
        results.append(
            {
                "id": str(one.id), "project_id": untrusted.name(one.namespace), "topic": untrusted.name(topic),
                "key": untrusted.name(key), "value": untrusted.text(value, one.labels),
                "created_by": untrusted.name(one.app_name), "created_at": one.created_at.isoformat(),
                "updated_at": one.updated_at.isoformat(), "score": one.score,
            }
        )  # fmt: skip
    lines = [f"{inline(one['topic'])}/{inline(one['key'])}: {block(one['value'])}" for one in results]
    data = search_results(answer.search_method, arguments.query, results)
    return Answer(lines or ["There is no value that you may read."], data, untrusted.note(answer.note))


async def _delete(services: Services, call: ToolCall[KeyArguments]) -> Answer:
    arguments = call.arguments
    value_id = await services.values.delete(call.caller, arguments.topic, arguments.key, arguments.project_id)
    message = f"Deleted: {inline(arguments.topic)}/{inline(arguments.key)}"
    return Answer([message], {"id": str(value_id)}, text=message)


def _output(value: StoredValue, untrusted: Untrusted) -> ValueOutput:
    return ValueOutput(
        id=value.id, project_id=untrusted.name(value.namespace), topic=untrusted.name(value.topic),
        key=untrusted.name(value.key), value=untrusted.text(value.value, value.labels),
        created_by=untrusted.name(value.app_name), created_at=value.created_at, updated_at=value.updated_at,
    )  # fmt: skip


def _line(one: ValueOutput) -> str:
    return f"{inline(one.topic)}/{inline(one.key)}: {block(one.value)}"


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "project_register", "Register a project", "Give a project a name.",
        RegisterArguments, ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True),
        _register, "Error registering project", toolset="projects",
    ),
    Tool(
        "project_list", "List projects", "List the projects, and how much is known of each.",
        NoArguments, ToolAnnotations(read_only_hint=True),
        _projects, "Error listing projects", toolset="projects",
    ),
    Tool(
        "project_status", "Show a project", "Show a project, its state, and whether everything has its vector.",
        StatusArguments, ToolAnnotations(read_only_hint=True),
        _status, "Error showing project", toolset="projects",
    ),
    Tool(
        "memory_set", "Set a value", "Remember a value under a topic and a key. It replaces the one before.",
        SetArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
        _set_value, "Error setting value", toolset="projects",
    ),
    Tool(
        "memory_get", "Get a value", "Read the value under a topic and a key.",
        KeyArguments, ToolAnnotations(read_only_hint=True),
        _get, "Error getting value", toolset="projects",
    ),
    Tool(
        "memory_list", "List values", "List the values of a project, by topic and key.",
        ListValuesArguments, ToolAnnotations(read_only_hint=True),
        _list, "Error listing values", toolset="projects",
    ),
    Tool(
        "memory_search", "Search values", "Find values of a project by meaning and by words.",
        SearchValuesArguments, ToolAnnotations(read_only_hint=True),
        _search, "Error searching values", toolset="projects",
    ),
    Tool(
        "memory_delete", "Delete a value", "Delete the value under a topic and a key.",
        KeyArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True),
        _delete, "Error deleting value", toolset="projects",
    ),
)  # fmt: skip
"""The tools for projects and values."""

"""Tools for conversations: store messages verbatim, search and read them. Offered by the toolset `threads`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any
from zoneinfo import ZoneInfo

from mcp_types import ToolAnnotations
from pydantic import BaseModel, BeforeValidator, Field, ValidationError

from openmemory.doors.mcp.compact import block, brackets, inline, listing
from openmemory.doors.mcp.tool import Answer, Arguments, Id, JsonObject, Time, Tool, ToolCall, absent, json_list
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import Invalid
from openmemory.search.schemas import SearchQuery
from openmemory.serialization.timestamps import TimeInput
from openmemory.serialization.zones import day_shown
from openmemory.services import Services
from openmemory.sources.models import PassageKind
from openmemory.sources.schemas import MessageAdded, MessageEvent, NewMessage, NewMessages

READ = 50
"""The number of messages that one call reads by default."""


class LoggedMessage(Arguments):
    """A message as a model gives it."""

    role: str = Field("user", description="user, assistant, or a name.")
    content: str
    id: str | None = Field(None, description="Yours; repeated ones are stored once.")
    created_at: TimeInput | None = None


class LogArguments(Arguments):
    thread_id: str = Field(description="The conversation's name, of your choice.")
    messages: Annotated[list[JsonObject], BeforeValidator(json_list)] = Field(
        description="Oldest first: {role, content, id?, created_at?}."
    )
    about: str | None = Field(None, description="person: of no project.")
    namespace: str | None = None
    title: str | None = None


class FindArguments(Arguments):
    query: str = Field(description="A question, or keywords.")
    limit: int | None = Field(None, description="10 by default.")
    namespace: str | None = None
    thread_id: str | None = None


class ReadArguments(Arguments):
    thread_id: str
    namespace: str | None = None
    around: int | None = Field(None, description="The number of a message: read it and what stands near it.")
    limit: int = Field(READ, description="1 to 100.")
    offset: int = Field(0, description="How many to skip.")


class ThreadsArguments(Arguments):
    namespace: str | None = None
    page: int = 1


class FoundMessage(BaseModel):
    id: Id
    thread_id: str
    position: int
    role: str
    content: str
    created_at: Time
    namespace: str
    app_name: str
    labels: list[str]
    score: float | None = Field(None, exclude_if=absent)


class MessagesOutput(BaseModel):
    results: list[FoundMessage]


async def _log(services: Services, call: ToolCall[LogArguments]) -> Answer:
    arguments = call.arguments
    messages = [_message(each) for each in arguments.messages]
    namespace = call.offer.project.target(arguments.namespace, arguments.about)
    new = NewMessages(arguments.thread_id, messages, namespace, arguments.title)
    results = await services.conversations.add(call.caller, new)
    additions = [each for each in results if isinstance(each, MessageAdded)]
    count = sum(each.event is MessageEvent.ADD for each in additions)
    where = call.offer.project.format_target(namespace)
    lines = [f"Stored {count} of {len(results)} messages in thread {inline(arguments.thread_id)}{where}."]
    if duplicates := len(additions) - count:
        lines.append(f"{duplicates} were there already.")
    for number, each in enumerate(results, 1):
        if isinstance(each, Invalid):
            lines.append(f"Message {number} was not stored: {inline(each.message)}")
        elif each.redacted:
            lines.append(f"Message {number}: {', '.join(each.redacted)} redacted.")
    outcomes = [
        {"error": each.message} if isinstance(each, Invalid) else {"id": str(each.id), "event": each.event.value}
        for each in results
    ]
    return Answer(lines, {"thread_id": arguments.thread_id, "results": outcomes})


def _message(value: dict[str, Any]) -> NewMessage | Invalid:
    try:
        message = LoggedMessage.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
        return Invalid(str(problem["loc"][0]) if problem["loc"] else "messages", str(problem["msg"]).lower())
    return NewMessage(message.content, message.role, message.id, message.created_at)


async def _find(services: Services, call: ToolCall[FindArguments]) -> Answer:
    arguments = call.arguments
    query = SearchQuery(
        arguments.query,
        limit=arguments.limit,
        namespaces=call.offer.project.read(arguments.namespace),
        threads=() if arguments.thread_id is None else (arguments.thread_id,),
        kinds=(PassageKind.TURN.value,),
    )
    answer = await services.search.passages(call.caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    messages = [_to_output(result, untrusted, result.score) for result in answer.results]
    output = MessagesOutput(results=messages).model_dump(mode="json")
    project = call.offer.project.implicit(arguments.namespace)
    return Answer(list(_lines(messages, project, call.caller.timezone)), output, untrusted.note(answer.note))


async def _read(services: Services, call: ToolCall[ReadArguments]) -> Answer:
    arguments = call.arguments
    namespaces = call.offer.project.read(arguments.namespace)
    page = await services.conversations.slice(
        call.caller,
        arguments.thread_id,
        namespaces=namespaces,
        around=arguments.around,
        offset=arguments.offset,
        limit=arguments.limit,
    )
    untrusted = Untrusted(services.settings.capture.injection)
    messages = [_to_output(message, untrusted) for message in page.items]
    more = page.total - len(messages)
    lines = [
        *_lines(messages, call.offer.project.implicit(arguments.namespace), call.caller.timezone),
        *([f"{page.total} messages in all."] if more else []),
    ]
    output = MessagesOutput(results=messages).model_dump(mode="json") | {"total": page.total}
    return Answer(lines, output, untrusted.note())


async def _threads(services: Services, call: ToolCall[ThreadsArguments]) -> Answer:
    arguments = call.arguments
    namespaces = call.offer.project.read(arguments.namespace)
    page = await services.conversations.threads(call.caller, namespaces=namespaces, page=arguments.page)
    untrusted = Untrusted(services.settings.capture.injection)
    lines, rows = [], []
    for thread in page.items:
        title = untrusted.name(thread.title) if thread.title else ""
        name, app = untrusted.name(thread.thread_id), untrusted.name(thread.app_name)
        where = untrusted.name(thread.namespace)
        state = ", closed" if thread.closed_at else ""
        suffix = f": {inline(title)}" if title else ""
        lines.append(
            f"{inline(name)} {day_shown(thread.updated_at, call.caller.timezone)} {inline(app)}"
            f" [{thread.messages} messages{state}; namespace {inline(where)}]{suffix}"
        )
        rows.append(
            {
                "thread_id": name, "namespace": where, "app_name": app, "title": title or None,
                "messages": thread.messages, "updated_at": thread.updated_at.isoformat(),
            }
        )  # fmt: skip
    lines = listing(lines, page, "There is no conversation that you may read.")
    return Answer(lines, {"results": rows, "total": page.total}, untrusted.note())


def _to_output(message: Any, untrusted: Untrusted, score: float | None = None) -> FoundMessage:
    return FoundMessage(
        id=message.id, thread_id=untrusted.name(message.thread_id or ""), position=message.position,
        role=untrusted.name(message.role or "user"), content=untrusted.text(message.content, message.labels),
        created_at=message.created_at, namespace=untrusted.name(message.namespace),
        app_name=untrusted.name(message.app_name), labels=message.labels, score=score,
    )  # fmt: skip


def _lines(messages: Iterable[FoundMessage], project: str | None, zone: ZoneInfo) -> Iterable[str]:
    """Yields a line for each message: its thread and number, date, app, speaker, and the text."""
    for message in messages:
        suffix = brackets(message.labels, message.namespace, project)
        yield (
            f"{inline(message.thread_id)}#{message.position} {day_shown(message.created_at, zone)}"
            f" {inline(message.app_name)}"
            f"{suffix} {inline(message.role)}: {block(message.content)}"
        )


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "log_messages", "Log messages",
        "Store messages of a conversation verbatim, so that they can be searched later.",
        LogArguments, ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=False),
        _log, "Error logging messages", toolset="threads",
    ),
    Tool(
        "search_messages", "Search messages",
        "Find what was said in earlier conversations, verbatim. search_memory finds what was concluded.",
        FindArguments, ToolAnnotations(read_only_hint=True),
        _find, "Error searching messages", toolset="threads",
    ),
    Tool(
        "read_thread", "Read a conversation",
        "Read messages of a conversation in order, all or around one that search_messages has shown.",
        ReadArguments, ToolAnnotations(read_only_hint=True),
        _read, "Error reading thread", toolset="threads",
    ),
    Tool(
        "list_threads", "List conversations",
        "List the conversations, the last used first.",
        ThreadsArguments, ToolAnnotations(read_only_hint=True),
        _threads, "Error listing threads", toolset="threads",
    ),
)  # fmt: skip
"""The tools for conversations."""

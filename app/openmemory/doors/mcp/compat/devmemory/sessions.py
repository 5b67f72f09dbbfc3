"""Tools for sessions: save, read, list and search numbered conversations. Offered by the toolset `sessions`.

Their names, arguments and JSON answers are those of DevMemory.
"""

from __future__ import annotations

from typing import Any
from zoneinfo import ZoneInfo

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.doors.mcp.compact import block, brackets, further, inline, listing
from openmemory.doors.mcp.compat.devmemory.answers import not_found, rename_errors, search_results
from openmemory.doors.mcp.tool import Answer, Arguments, Id, Time, Tool, ToolCall, absent
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import NotFound
from openmemory.search.schemas import SearchQuery
from openmemory.serialization.zones import day_shown
from openmemory.services import Services
from openmemory.sources.models import PassageKind
from openmemory.sources.schemas import NewSession, SavedSession
from openmemory.sources.sessions import number_of

_PAGE = 16_000
"""The number of characters of a session's text that one call reads."""


class CreateArguments(Arguments):
    project_id: str = Field(description="The project: a namespace.")
    session_num: int = Field(description="Its number. A session of the same number is replaced.")
    title: str = Field(description="What it was about, in a line.")
    summary: str | None = Field(None, description="What came of it.")
    content: str | None = Field(None, description="Its text, such as a transcript.")


class GetArguments(Arguments):
    project_id: str
    session_num: int
    page: int = Field(1, description=f"{_PAGE:,} characters of the text a page.")


class ListSessionsArguments(Arguments):
    project_id: str
    page: int = 1


class SearchSessionsArguments(Arguments):
    project_id: str
    query: str = Field(description="A question, or keywords.")
    limit: int | None = Field(None, description="10 by default.")


class SessionOutput(BaseModel):
    project_id: str
    session_num: int
    title: str
    summary: str
    app_name: str
    created_at: Time
    updated_at: Time
    content: str | None = Field(None, exclude_if=absent)
    pages: int | None = Field(None, exclude_if=absent)


class FoundInSession(BaseModel):
    id: Id
    project_id: str
    session_num: int | None
    title: str
    content: str
    app_name: str
    created_at: Time
    labels: list[str]
    score: float


async def _create(services: Services, call: ToolCall[CreateArguments]) -> Answer:
    arguments = call.arguments
    new = NewSession(
        arguments.session_num, arguments.title, arguments.summary or "", arguments.content or "", arguments.project_id
    )
    with rename_errors(number="session_num"):
        session = await services.sessions.save(call.caller, new)
    verb = {"ADD": "created", "UPDATE": "updated", "NONE": "is unchanged"}[session.event.value]
    data = {"id": str(session.id), "session_num": session.number, "event": session.event.value}
    data |= {"redacted": session.redacted} if session.redacted else {}
    notes = [f"{', '.join(session.redacted)} redacted."] if session.redacted else []
    notes += [f"It replaces the session of {Untrusted().name(session.replaces)}."] if session.replaces else []
    note = " ".join([*notes, *([session.note] if session.note else [])]) or None
    name, title = f"Session {session.number}", inline(session.title)
    return Answer([f"{name} {verb}: {title}"], data, note, f"{name} created: {title}")


async def _get(services: Services, call: ToolCall[GetArguments]) -> Answer:
    arguments = call.arguments
    try:
        with rename_errors(number="session_num"):
            record = await services.sessions.read(
                call.caller, arguments.session_num, namespaces=(arguments.project_id,)
            )
    except NotFound:
        return not_found(f"There is no session {arguments.session_num} that you may read.")
    untrusted = Untrusted(services.settings.capture.injection)
    pages = max(1, -(-len(record.content) // _PAGE))
    page = max(1, min(arguments.page, pages))
    part = untrusted.text(record.content[(page - 1) * _PAGE : page * _PAGE], record.labels)
    output = _session(record.session, untrusted, record.labels)
    output = output.model_copy(update={"content": part, "pages": pages})
    lines = [
        _line(output, call.caller.timezone),
        *([block(output.summary)] if output.summary else []),
        *([block(part)] if part else []),
    ]
    if pages > 1:
        lines.append(f"Page {page} of {pages}.")
    return Answer(lines, output.model_dump(mode="json"), untrusted.note())


async def _list(services: Services, call: ToolCall[ListSessionsArguments]) -> Answer:
    arguments = call.arguments
    page = await services.sessions.list(call.caller, namespaces=(arguments.project_id,), page=arguments.page)
    untrusted = Untrusted(services.settings.capture.injection)
    outputs = [_session(session, untrusted, ()) for session in page.items]
    lines = [_line(one, call.caller.timezone) for one in outputs]
    lines = listing(lines, page, "There is no session that you may read.")
    results = [one.model_dump(mode="json") for one in outputs]
    return Answer(lines, {"results": results, "total": page.total}, untrusted.note(further(page)), results)


async def _search(services: Services, call: ToolCall[SearchSessionsArguments]) -> Answer:
    arguments = call.arguments
    kinds = (PassageKind.SESSION.value,)
    query = SearchQuery(arguments.query, limit=arguments.limit, namespaces=(arguments.project_id,), kinds=kinds)
    answer = await services.search.passages(call.caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    outputs = [
        FoundInSession(
            id=result.id, project_id=untrusted.name(result.namespace),
            session_num=number_of(result.thread_id),
            title=untrusted.name(result.heading or ""), content=untrusted.text(result.content, result.labels),
            app_name=untrusted.name(result.app_name), created_at=result.created_at, labels=result.labels,
            score=result.score,
        )
        for result in answer.results
    ]  # fmt: skip
    lines = [
        f"{one.session_num}{brackets(one.labels, one.project_id, arguments.project_id)} {inline(one.title)}:"
        f"\n  {block(one.content)}"
        for one in outputs
    ]
    data = search_results(answer.search_method, arguments.query, [one.model_dump(mode="json") for one in outputs])
    return Answer(lines, data, untrusted.note(answer.note))


def _session(session: SavedSession, untrusted: Untrusted, labels: Any) -> SessionOutput:
    summary = untrusted.text(session.summary, labels) if labels and session.summary else untrusted.name(session.summary)
    return SessionOutput(
        project_id=untrusted.name(session.namespace), session_num=session.number,
        title=untrusted.name(session.title), summary=summary, app_name=untrusted.name(session.app_name),
        created_at=session.created_at, updated_at=session.updated_at,
    )  # fmt: skip


def _line(one: SessionOutput, zone: ZoneInfo) -> str:
    return f"{one.session_num}. {day_shown(one.updated_at, zone)} {inline(one.app_name)}: {inline(one.title)}"


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "session_create", "Save a session",
        "Save what a session of work was about, so that a later one can go on.",
        CreateArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
        _create, "Error saving session", toolset="sessions",
    ),
    Tool(
        "session_get", "Read a session", "Read a saved session with its text.",
        GetArguments, ToolAnnotations(read_only_hint=True),
        _get, "Error reading session", toolset="sessions",
    ),
    Tool(
        "session_list", "List sessions", "List the saved sessions of a project, the last number first.",
        ListSessionsArguments, ToolAnnotations(read_only_hint=True),
        _list, "Error listing sessions", toolset="sessions",
    ),
    Tool(
        "session_search", "Search sessions", "Find passages of saved sessions of a project.",
        SearchSessionsArguments, ToolAnnotations(read_only_hint=True),
        _search, "Error searching sessions", toolset="sessions",
    ),
)  # fmt: skip
"""The tools for sessions."""

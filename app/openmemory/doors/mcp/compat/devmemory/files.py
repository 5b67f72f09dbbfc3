"""Tools for the files of a project. Offered by the toolset `files`.

`file_index` and `file_search` have the names, arguments and JSON answers of DevMemory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.doors.mcp.compact import block, brackets, inline
from openmemory.doors.mcp.compat.devmemory.answers import rename_errors, search_results
from openmemory.doors.mcp.tool import Answer, Arguments, Id, Items, JsonObject, Time, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.errors import BatchRefused, Invalid
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.search.schemas import Method, PassageResult, SearchQuery
from openmemory.serialization import exact_json
from openmemory.services import Services
from openmemory.sources.models import PassageKind
from openmemory.sources.schemas import FileEvent, NewFile

_KINDS = PassageKind.TEXT.value, PassageKind.CODE.value


class FilesArguments(Arguments):
    query: str = Field(description="A question, or keywords.")
    limit: int | None = Field(None, description="10 by default.")
    namespace: str | None = Field(None, description="Only this project.")
    path: str | None = Field(None, description="Only files whose path begins so.")
    language: str | None = Field(None, description="Such as python.")
    symbol: str | None = Field(None, description="Only code that defines this name, such as Store.get.")


class IndexArguments(Arguments):
    project_id: str = Field(description="The project: a namespace.")
    file_path: str = Field(description="Relative to the project, such as src/main.py.")
    file_type: str | None = None
    summary: str | None = Field(None, description="What the file is about.")
    symbols: Items | JsonObject = Field(default_factory=list, description="The names that it defines.")


class SearchIndexArguments(Arguments):
    project_id: str
    query: str = Field(description="A question, or keywords.")
    limit: int | None = Field(None, description="10 by default.")


class FoundPassage(BaseModel):
    id: Id
    path: str
    first_line: int | None
    last_line: int | None
    heading: str | None
    language: str | None
    content: str
    namespace: str
    app_name: str
    created_at: Time
    labels: list[str]
    score: float


class PassagesOutput(BaseModel):
    results: list[FoundPassage]


async def _find(services: Services, call: ToolCall[FilesArguments]) -> Answer:
    arguments = call.arguments
    query = SearchQuery(
        arguments.query,
        limit=arguments.limit,
        namespaces=call.offer.project.read(arguments.namespace),
        kinds=_KINDS,
        below=arguments.path or "",
        languages=() if arguments.language is None else (arguments.language.lower(),),
        symbol=arguments.symbol or "",
    )
    passages, _, note = await _search_passages(services, call.caller, query)
    output = PassagesOutput(results=passages).model_dump(mode="json")
    return Answer(list(_lines(passages, call.offer.project.implicit(arguments.namespace))), output, note)


async def _index(services: Services, call: ToolCall[IndexArguments]) -> Answer:
    arguments = call.arguments
    path = arguments.file_path.removeprefix("./")
    defined = (
        arguments.symbols if isinstance(arguments.symbols, list) else [arguments.symbols] if arguments.symbols else []
    )
    symbols = [one if isinstance(one, str) else exact_json.dumps(one).decode() for one in defined]
    parts = [arguments.summary or "", f"Type: {arguments.file_type}" if arguments.file_type else "", ", ".join(symbols)]
    text = "\n\n".join(part for part in parts if part)
    with rename_errors(path="file_path", text="summary"):
        if not text and await _is_stored(services, call.caller, arguments.project_id, path):
            summary = f"Indexed: {inline(path)}"
            return Answer([summary], {"file_path": path, "event": FileEvent.NONE.value}, text=summary)
        new = NewFile(path, text or path)  # so that at least the words of the path are found
        try:
            [result] = await services.files.store(call.caller, arguments.project_id, [new])
        except BatchRefused as error:
            raise error.refused[0] from None
        if isinstance(result, Invalid):
            raise result
    summary = f"Indexed: {inline(result.path)}"
    notes = [f"{', '.join(result.redacted)} redacted."] if result.redacted else []
    note = " ".join([*notes, *([result.note] if result.note else [])]) or None
    return Answer([summary], {"file_path": result.path, "event": result.event.value}, note, summary)


async def _is_stored(services: Services, caller: Caller, project: str, path: str) -> bool:
    """Returns True if a file is stored that the caller may read."""
    if Scope.READ not in caller.principal.scopes:
        return False
    page = await services.files.list(caller, namespaces=(project,), below=path, size=1)
    return any(one.path == path for one in page.items)


async def _search_index(services: Services, call: ToolCall[SearchIndexArguments]) -> Answer:
    arguments = call.arguments
    query = SearchQuery(arguments.query, limit=arguments.limit, namespaces=(arguments.project_id,), kinds=_KINDS)
    passages, method, note = await _search_passages(services, call.caller, query)
    results = [
        {
            "id": str(one.id), "project_id": one.namespace, "file_path": one.path, "file_type": one.language,
            "summary": one.content, "created_by": one.app_name, "created_at": one.created_at.isoformat(),
            "score": one.score,
        }
        for one in passages
    ]  # fmt: skip
    return Answer(list(_lines(passages, arguments.project_id)), search_results(method, arguments.query, results), note)


async def _search_passages(
    services: Services, caller: Caller, query: SearchQuery
) -> tuple[list[FoundPassage], Method, str | None]:
    answer = await services.search.passages(caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    passages = [_to_passage(result, untrusted) for result in answer.results]
    return passages, answer.search_method, untrusted.note(answer.note)


def _to_passage(result: PassageResult, untrusted: Untrusted) -> FoundPassage:
    return FoundPassage(
        id=result.id, path=untrusted.name(result.path or ""), first_line=result.first_line, last_line=result.last_line,
        heading=result.heading and untrusted.name(result.heading), language=result.language,
        content=untrusted.text(result.content, result.labels), namespace=untrusted.name(result.namespace),
        app_name=untrusted.name(result.app_name), created_at=result.created_at, labels=result.labels,
        score=result.score,
    )  # fmt: skip


def _lines(passages: Iterable[FoundPassage], project: str | None) -> Iterable[str]:
    """Yields each passage: its file and lines, what is unusual, its headings, and the text."""
    for passage in passages:
        suffix = brackets(passage.labels, passage.namespace, project)
        under = f" {inline(passage.heading)}" if passage.heading else ""
        yield (
            f"{inline(passage.path)}:{passage.first_line}-{passage.last_line}{suffix}{under}:\n"
            f"  {block(passage.content)}"
        )


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "search_files", "Search files",
        "Find passages of the code and documents of a project, with their files and lines.",
        FilesArguments, ToolAnnotations(read_only_hint=True),
        _find, "Error searching files", toolset="files",
    ),
    Tool(
        "file_index", "Index a file",
        "Keep what a file is about and what it defines, in place of its text.",
        IndexArguments, ToolAnnotations(read_only_hint=False, destructive_hint=True, idempotent_hint=True),
        _index, "Error indexing file", toolset="files",
    ),
    Tool(
        "file_search", "Search files", "Find files of a project by what they are about.",
        SearchIndexArguments, ToolAnnotations(read_only_hint=True),
        _search_index, "Error searching files", toolset="files",
    ),
)  # fmt: skip
"""The tools for files."""

"""The tool that searches the files of a project. Offered by the toolset `files`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.mcp.compact import block, brackets, inline
from openmemory.mcp.tool import Answer, Arguments, Id, Time, Tool, ToolCall
from openmemory.mcp.untrusted import Untrusted
from openmemory.search.schemas import PassageResult, SearchQuery
from openmemory.services import Services
from openmemory.sources.models import PassageKind


class FilesArguments(Arguments):
    query: str = Field(description="A question, or keywords.")
    limit: int | None = Field(None, description="10 by default.")
    namespace: str | None = Field(None, description="Only this project.")
    path: str | None = Field(None, description="Only files whose path begins so.")
    language: str | None = Field(None, description="Such as python.")
    symbol: str | None = Field(None, description="Only code that defines this name, such as Store.get.")


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
        namespaces=() if arguments.namespace is None else (arguments.namespace,),
        kinds=(PassageKind.TEXT.value, PassageKind.CODE.value),
        below=arguments.path or "",
        languages=() if arguments.language is None else (arguments.language.lower(),),
        symbol=arguments.symbol or "",
    )
    answer = await services.search.passages(call.caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    found = [_shown(result, untrusted) for result in answer.results]
    output = PassagesOutput(results=found).model_dump(mode="json")
    return Answer(list(_lines(found, arguments.namespace)), output, untrusted.note(answer.note))


def _shown(result: PassageResult, untrusted: Untrusted) -> FoundPassage:
    return FoundPassage(
        id=result.id, path=untrusted.name(result.path or ""), first_line=result.first_line, last_line=result.last_line,
        heading=result.heading and untrusted.name(result.heading), language=result.language,
        content=untrusted.text(result.content, result.labels), namespace=untrusted.name(result.namespace),
        app_name=untrusted.name(result.app_name), created_at=result.created_at, labels=result.labels,
        score=result.score,
    )  # fmt: skip


def _lines(found: Iterable[FoundPassage], asked: str | None) -> Iterable[str]:
    """Yields each passage: its file and lines, what is unusual, its headings, and the text."""
    for passage in found:
        marked = brackets(passage.labels, passage.namespace, asked)
        under = f" {inline(passage.heading)}" if passage.heading else ""
        yield (
            f"{inline(passage.path)}:{passage.first_line}-{passage.last_line}{marked}{under}:\n"
            f"  {block(passage.content)}"
        )


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "search_files", "Search files",
        "Find passages of the code and documents of a project, with their files and lines.",
        FilesArguments, ToolAnnotations(read_only_hint=True),
        _find, "Error searching files", toolset="files",
    ),
)  # fmt: skip
"""The tools for files."""

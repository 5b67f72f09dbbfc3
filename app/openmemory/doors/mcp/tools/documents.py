"""Tools for documents: find them, search and read their text. Offered by the toolset `documents`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel, Field

from openmemory.doors.mcp.compact import block, brackets, inline, listing
from openmemory.doors.mcp.tool import Answer, Arguments, Id, Time, Tool, ToolCall
from openmemory.doors.mcp.untrusted import Untrusted
from openmemory.search.schemas import PassageResult, SearchQuery
from openmemory.serialization.zones import day_shown
from openmemory.services import Services
from openmemory.sources.models import PassageKind
from openmemory.sources.schemas import StoredDocument

_PAGE = 10


class FindDocumentsArguments(Arguments):
    query: str = Field(description="A question, or keywords.")
    limit: int | None = Field(None, description="10 by default.")
    namespace: str | None = Field(None, description="Only this project.")
    name: str | None = Field(None, description="Only documents whose name begins so.")


class ReadDocumentArguments(Arguments):
    name: str = Field(description="As search_documents and list_documents show it.")
    namespace: str | None = Field(None, description="Its project, if several have the name.")
    page: int = Field(1, description=f"{_PAGE} passages a page.")


class ListDocumentsArguments(Arguments):
    namespace: str | None = Field(None, description="Only this project.")
    name: str | None = Field(None, description="Only documents whose name begins so.")
    page: int = 1


class FoundPart(BaseModel):
    id: Id
    name: str
    heading: str | None
    first_line: int | None
    last_line: int | None
    content: str
    namespace: str
    app_name: str
    created_at: Time
    labels: list[str]
    score: float


class FoundDocumentsOutput(BaseModel):
    results: list[FoundPart]


class ReadPart(BaseModel):
    position: int
    heading: str | None
    content: str
    labels: list[str]


class DocumentTextOutput(BaseModel):
    name: str
    passages: list[ReadPart]
    total: int


class ListedDocument(BaseModel):
    id: Id
    name: str
    title: str | None
    namespace: str
    app_name: str
    passages: int
    updated_at: Time


class DocumentListOutput(BaseModel):
    results: list[ListedDocument]
    total: int


async def _find(services: Services, call: ToolCall[FindDocumentsArguments]) -> Answer:
    arguments = call.arguments
    query = SearchQuery(
        arguments.query,
        limit=arguments.limit,
        namespaces=call.offer.project.read(arguments.namespace),
        kinds=(PassageKind.DOCUMENT.value,),
        below=arguments.name or "",
    )
    answer = await services.search.passages(call.caller, query)
    untrusted = Untrusted(services.settings.capture.injection)
    parts = [_part(result, untrusted) for result in answer.results]
    output = FoundDocumentsOutput(results=parts).model_dump(mode="json")
    project = call.offer.project.implicit(arguments.namespace)
    return Answer(list(_parts(parts, project)), output, untrusted.note(answer.note))


def _part(result: PassageResult, untrusted: Untrusted) -> FoundPart:
    return FoundPart(
        id=result.id, name=untrusted.name(result.path or ""), heading=result.heading and untrusted.name(result.heading),
        first_line=result.first_line, last_line=result.last_line,
        content=untrusted.text(result.content, result.labels), namespace=untrusted.name(result.namespace),
        app_name=untrusted.name(result.app_name), created_at=result.created_at, labels=result.labels,
        score=result.score,
    )  # fmt: skip


def _parts(parts: Iterable[FoundPart], project: str | None) -> Iterable[str]:
    """Yields each passage: its document, what is unusual, its heading, and the text."""
    for part in parts:
        suffix = brackets(part.labels, part.namespace, project)
        under = f" {inline(part.heading)}" if part.heading else ""
        lines = "" if part.first_line is None else f":{part.first_line}-{part.last_line}"
        yield f"{inline(part.name)}{lines}{suffix}{under}:\n  {block(part.content)}"


async def _read(services: Services, call: ToolCall[ReadDocumentArguments]) -> Answer:
    arguments = call.arguments
    namespaces = call.offer.project.read(arguments.namespace)
    document = await services.documents.find_by_name(call.caller, arguments.name, namespaces)
    text = await services.documents.text(call.caller, document, page=arguments.page, size=_PAGE)
    untrusted = Untrusted(services.settings.capture.injection)
    parts = [
        ReadPart(
            position=one.position, heading=one.heading and untrusted.name(one.heading),
            content=untrusted.text(one.content, one.labels), labels=one.labels,
        )
        for one in text.items
    ]  # fmt: skip
    name = untrusted.name(text.document.name)
    more = f"; page {text.page + 1} goes on" if text.page * _PAGE < text.total else ""
    lines = [f"{inline(name)}, {text.total} passages in all{more}."]
    for one in parts:
        under = f" {inline(one.heading)}" if one.heading else ""
        lines.append(f"{one.position}{' [flagged]' if one.labels else ''}{under}:\n  {block(one.content)}")
    output = DocumentTextOutput(name=name, passages=parts, total=text.total).model_dump(mode="json")
    return Answer(lines, output, untrusted.note())


async def _list(services: Services, call: ToolCall[ListDocumentsArguments]) -> Answer:
    arguments = call.arguments
    namespaces = call.offer.project.read(arguments.namespace)
    page = await services.documents.list(
        call.caller, namespaces=namespaces, below=arguments.name or "", page=arguments.page
    )
    untrusted = Untrusted(services.settings.capture.injection)
    documents = [_to_output(document, untrusted) for document in page.items]
    lines = [
        f"{inline(one.name)} {day_shown(one.updated_at, call.caller.timezone)} {inline(one.app_name)}"
        f" [{one.passages} passages; namespace {inline(one.namespace)}]{f': {inline(one.title)}' if one.title else ''}"
        for one in documents
    ]
    lines = listing(lines, page, "There is no document that you may read.")
    output = DocumentListOutput(results=documents, total=page.total).model_dump(mode="json")
    return Answer(lines, output, untrusted.note())


def _to_output(document: StoredDocument, untrusted: Untrusted) -> ListedDocument:
    return ListedDocument(
        id=document.id, name=untrusted.name(document.name), title=document.title and untrusted.name(document.title),
        namespace=untrusted.name(document.namespace), app_name=untrusted.name(document.app_name),
        passages=document.passages, updated_at=document.updated_at,
    )  # fmt: skip


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "search_documents", "Search documents", "Find passages of stored documents, such as PDFs.",
        FindDocumentsArguments, ToolAnnotations(read_only_hint=True),
        _find, "Error searching documents", toolset="documents",
    ),
    Tool(
        "read_document", "Read a document", "Read the text of a document, a page at a time.",
        ReadDocumentArguments, ToolAnnotations(read_only_hint=True),
        _read, "Error reading document", toolset="documents",
    ),
    Tool(
        "list_documents", "List documents", "List stored documents by name.",
        ListDocumentsArguments, ToolAnnotations(read_only_hint=True),
        _list, "Error listing documents", toolset="documents",
    ),
)  # fmt: skip
"""The tools for documents."""

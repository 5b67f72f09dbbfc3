"""Defines a tool: a name, a description for the model, input and output schemas, and a use case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Generic, TypeVar
from uuid import UUID

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as ListedTool
from pydantic import BaseModel, ConfigDict, PlainSerializer, ValidationError

from openmemory.errors import Forbidden, NotFound, OpenMemoryError, Unavailable
from openmemory.identity.caller import Caller
from openmemory.mcp.identity import Identity
from openmemory.serialization import exact_json
from openmemory.services import Services

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")


Id = Annotated[UUID, PlainSerializer(str, return_type=str)]
"""An id in an output. Its schema is a plain string."""

Time = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]
"""A time in an output. Its schema is a plain string."""


def absent(value: object) -> bool:
    """Returns True for the value of a field that an output leaves out."""
    return value is None


class Arguments(BaseModel):
    """Base of a tool's input. Unknown arguments are ignored: models invent some."""

    model_config = ConfigDict(extra="ignore")


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool: `structured` follows the output schema, `text` is for clients that read only text.

    `note` is sent to those clients in addition to a text that cannot hold it.
    """

    text: str
    structured: dict[str, Any]
    note: str | None = None

    @classmethod
    def of(cls, output: BaseModel, *, indented: bool = False) -> Answer:
        """Returns the answer that holds an output, whose text is the same as JSON."""
        structured = output.model_dump(mode="json")
        return cls(exact_json.dumps(structured, indented=indented).decode(), structured)


class CallOutcome(StrEnum):
    """The outcome of a call. refused: the caller can fix it; unavailable: it passes by itself; failed: a defect;
    cancelled: nobody waits for the answer."""

    OK = "ok"
    REFUSED = "refused"
    UNAVAILABLE = "unavailable"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Tool(Generic[ArgumentsT]):
    """One tool of the server."""

    name: str
    title: str
    description: str
    arguments: type[ArgumentsT]
    output: type[BaseModel]
    annotations: ToolAnnotations
    run: Callable[[Services, Caller, ArgumentsT], Awaitable[Answer]]
    failing: str
    """The beginning of an unexpected failure's text, as in OpenMemory, such as `Error searching memory`."""

    def listed(self) -> ListedTool:
        """Returns the tool as `tools/list` shows it."""
        return ListedTool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=_schema(self.arguments),
            output_schema=_schema(self.output, mode="serialization"),
            annotations=self.annotations,
        )

    async def call(
        self, services: Services, identity: Identity, arguments: dict[str, Any]
    ) -> tuple[CallToolResult, CallOutcome]:
        """Runs the tool. Problems that the caller can fix come back as an error result that says how."""
        if identity.missing is not None:
            return failure(f"Error: {identity.missing} not provided"), CallOutcome.REFUSED
        try:
            # Models write null for what they leave out.
            parsed = self.arguments.model_validate(
                {key: value for key, value in arguments.items() if value is not None}
            )
        except ValidationError as error:
            return failure(f"{self.failing}: {_first(error)}"), CallOutcome.REFUSED
        try:
            caller = await services.directory.speaking(identity.principal, identity.user, identity.app)
            answer = await self.run(services, caller, parsed)
        except OpenMemoryError as error:
            await services.denials.record(identity.principal, error, f"tool {self.name}")
            outcome = CallOutcome.UNAVAILABLE if isinstance(error, Unavailable) else CallOutcome.REFUSED
            return failure(self._words(error)), outcome
        content = [TextContent(type="text", text=text) for text in (answer.text, answer.note) if text is not None]
        return CallToolResult(content=content, structured_content=answer.structured), CallOutcome.OK

    def _words(self, error: OpenMemoryError) -> str:
        words = error.message if error.hint is None else f"{error.message} {error.hint}"
        if isinstance(error, Forbidden | NotFound):
            return f"Error: {words}"
        if isinstance(error, Unavailable):
            return f"Error: Memory system is currently unavailable. Please try again later. {words}"
        return f"{self.failing}: {words}"


def failure(text: str) -> CallToolResult:
    """Returns an error that the model sees and can act on."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _first(error: ValidationError) -> str:
    """Describes the first problem: the argument's name and what is wrong, never the value."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"


def _schema(model: type[BaseModel], mode: Any = "validation") -> dict[str, Any]:
    schema = model.model_json_schema(mode=mode)
    schema.pop("description", None)
    untitled: dict[str, Any] = _untitled(schema)
    return untitled


def _untitled(value: Any) -> Any:
    """Returns a schema without the titles that pydantic derives from names: they cost tokens and say nothing."""
    if isinstance(value, dict):
        return {key: _untitled(item) for key, item in value.items() if not (key == "title" and isinstance(item, str))}
    return [_untitled(item) for item in value] if isinstance(value, list) else value

"""Defines a tool: a name, a description for the model, input and output schemas, and a use case."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Generic, TypeVar
from uuid import UUID

from mcp_types import CallToolResult, TextContent, ToolAnnotations
from mcp_types import Tool as ListedTool
from pydantic import BaseModel, BeforeValidator, ConfigDict, PlainSerializer, ValidationError, model_validator

from openmemory.doors.mcp import compact
from openmemory.doors.mcp.formats import AnswerFormat, answer_format
from openmemory.doors.mcp.identity import Identity, Offer
from openmemory.doors.mcp.places import ALL, ClientProject
from openmemory.errors import Forbidden, NotFound, OpenMemoryError, Unavailable
from openmemory.identity.caller import Caller
from openmemory.identity.names import PERSON, one_word
from openmemory.projects import tokens
from openmemory.serialization import exact_json, zones
from openmemory.services import Services

ArgumentsT = TypeVar("ArgumentsT", bound="Arguments")


Id = Annotated[UUID, PlainSerializer(str, return_type=str)]
"""An id in an output. Its schema is a plain string."""

Time = Annotated[datetime, PlainSerializer(datetime.isoformat, return_type=str)]
"""A time in an output. Its schema is a plain string."""


def absent(value: object) -> bool:
    """Returns True for the value of a field that an output leaves out."""
    return value is None


def _object(value: Any) -> Any:
    """Reads an argument. Some models send an object as JSON text."""
    return json_of_type(value, dict)


def _strings(value: Any) -> Any:
    """Reads a list that is sent as JSON text, and takes a single text as a list of one."""
    value = json_of_type(value, list)
    value = [value] if isinstance(value, str) else value
    return [_text(each) for each in value] if isinstance(value, list) else value


def json_list(value: Any) -> Any:
    """Reads a list that is sent as JSON text, and takes a single object as a list of one."""
    value = json_of_type(value, list)
    return [value] if isinstance(value, dict) else value


def _text(value: Any) -> Any:
    """Reads the characters of an id that are all digits, which some models send as a number."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def json_of_type(value: Any, type_: type) -> Any:
    """Reads a value of this type that is sent as JSON text. Returns anything else as it is."""
    if not isinstance(value, str):
        return value
    try:
        decoded = exact_json.loads(value)
    except (ValueError, RecursionError):
        return value
    return decoded if isinstance(decoded, type_) else value


JsonObject = Annotated[dict[str, Any], BeforeValidator(_object)]
"""An argument that is an object, also as JSON text."""

Strings = Annotated[list[str], BeforeValidator(_strings)]
"""An argument that is a list of texts, also as JSON text, or a single text."""

Items = Annotated[list[str | dict[str, Any]], BeforeValidator(_strings)]
"""An argument that is a list of texts or objects. JSON text and a single text are lists, too."""

Reference = Annotated[str, BeforeValidator(_text)]
"""An argument that is the id of a memory."""


class Arguments(BaseModel):
    """Base of a tool's input. Unknown arguments are named in the answer's note: models invent some."""

    model_config = ConfigDict(extra="ignore")

    needless: ClassVar[frozenset[str]] = frozenset()
    """The arguments that only clients of another server send. The tool ignores them, and its answer does not say so."""
    projects: ClassVar[tuple[str, ...]] = ("namespace", "repo", "project_id")
    """The arguments that name a project. A path in them is that of the client's project."""
    zeros: ClassVar[frozenset[str]] = frozenset()
    """The optional arguments for which 0 is a value of its own."""

    @model_validator(mode="before")
    @classmethod
    def _without_empty(cls, values: Any) -> Any:
        if not isinstance(values, dict):
            return values
        return {name: value for name, value in values.items() if not cls.leaves_out(name, value)}

    def named_projects(self, client: ClientProject) -> dict[str, str]:
        """Returns the projects that the arguments name, by the argument.

        Raises:
            Invalid: one is a path outside of the client's project.
        """
        fields = ((field, getattr(self, field, None)) for field in self.projects)
        return {field: client.resolve(name, field) for field, name in fields if isinstance(name, str)}

    @classmethod
    def leaves_out(cls, name: str, value: Any) -> bool:
        """Returns True if an argument counts as left out.

        Models write null for what they leave out, and some proxies fill all optional arguments with empty values of
        their types. Therefore an empty text, list or object and 0 leave an optional argument out. A flag may be false
        or 0, and 0 is a value of `zeros`; an `offset` of 0 is the default anyway.
        """
        field = cls.model_fields.get(name)
        if value is None or (field is not None and field.is_required()):
            return value is None
        if isinstance(value, int | float):
            flag = isinstance(value, bool) or (field is not None and field.annotation is bool)
            return value == 0 and not flag and name not in cls.zeros
        return value in ("", [], {})


AskUser = Callable[[str], Awaitable[bool]]
"""Asks the user through the client and returns True if they agree."""


@dataclass(frozen=True, slots=True)
class ToolCall(Generic[ArgumentsT]):
    """One call of a tool. `ask` is None if the client cannot ask its user."""

    caller: Caller
    arguments: ArgumentsT
    offer: Offer
    ask: AskUser | None


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of a tool.

    `lines` are the compact form, `data` is the structured content of the JSON form. `text` is the text in the JSON form
    as the server that we succeed gives it: JSON with fewer fields, or a list or a text with the note beside it; None
    means that it is `data`. The note comes last in every form.
    """

    lines: Sequence[str]
    data: dict[str, Any]
    note: str | None = None
    text: str | list[Any] | dict[str, Any] | None = None

    @property
    def items(self) -> int:
        """The entries of the lists in the data, such as results."""
        return sum(len(value) for value in self.data.values() if isinstance(value, list))

    def result(self, form: AnswerFormat, unknown: Sequence[str]) -> CallToolResult:
        """Returns what is sent. `unknown`: the names of arguments that the tool does not have.

        The compact form has no structured content, because some clients show a model that in place of the text.
        """
        ignored = f"Unknown arguments were ignored: {', '.join(map(_shorten, unknown))}." if unknown else None
        note = compact.sentences(self.note, ignored)
        if form is AnswerFormat.COMPACT:
            lines = self.lines if note is None else [*self.lines, f"Note: {compact.inline(note)}"]
            return CallToolResult(content=[TextContent(type="text", text="\n".join(lines))])
        noted = {} if note is None else {"note": note}
        if isinstance(self.text, str | list):
            texts = [self.text if isinstance(self.text, str) else _dump_json(self.text), note]
        else:
            texts = [_dump_json((self.text or self.data) | noted)]
        content = [TextContent(type="text", text=text) for text in texts if text is not None]
        return CallToolResult(content=content, structured_content=self.data | noted)


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
    annotations: ToolAnnotations
    run: Callable[[Services, ToolCall[ArgumentsT]], Awaitable[Answer]]
    failing: str
    """The beginning of an unexpected failure's text, as in OpenMemory, such as `Error searching memory`."""
    toolset: str | None = None
    """The toolset that offers the tool; None: it is always offered. Every tool can be called by its name."""

    @property
    def writes(self) -> bool:
        """True if the tool may change something."""
        return not self.annotations.read_only_hint

    def listing(self, *, confirmed: bool = False) -> ListedTool:
        """Returns the tool as `tools/list` shows it. `confirmed`: a tool that writes has this argument."""
        schema = _schema(self.arguments)
        if confirmed and self.writes:
            schema.setdefault("properties", {})["confirmed"] = {
                "type": "boolean", "description": "true: the user has agreed.",
            }  # fmt: skip
        return ListedTool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=schema,
            annotations=self.annotations,
        )

    async def call(
        self, services: Services, identity: Identity, arguments: dict[str, Any], ask: AskUser | None = None
    ) -> tuple[CallToolResult, CallOutcome]:
        """Runs the tool. Problems that the caller can fix come back as an error result that says how."""
        if identity.missing is not None:
            return failure(f"Error: {identity.missing} not provided"), CallOutcome.REFUSED
        values = {key: value for key, value in arguments.items() if not self.arguments.leaves_out(key, value)}
        format_name = values.pop("format", identity.offer.format)
        confirmed = values.pop("confirmed", False) in (True, "true")
        zone = values.pop(zones.FIELD, None)
        if refusal := await self._refusal(services.settings.mcp.write_mode, ask, confirmed=confirmed):
            return failure(refusal), CallOutcome.REFUSED
        try:
            request = self.arguments.model_validate(values)
        except ValidationError as error:
            return failure(f"{self.failing}: {_first(error)}"), CallOutcome.REFUSED
        try:
            form = answer_format(format_name)
            projects = request.named_projects(identity.offer.project)
            request = request.model_copy(update=projects)
            caller = await services.directory.app_caller(identity.principal, identity.user, identity.app)
            caller = caller.in_timezone(None if zone is None else str(zone))
            slip = await _near_miss(services, caller, projects, identity.offer.project)
            answer = await self.run(services, ToolCall(caller, request, identity.offer, ask))
        except OpenMemoryError as error:
            await services.denials.record(identity.principal, error, f"tool {self.name}")
            outcome = CallOutcome.UNAVAILABLE if isinstance(error, Unavailable) else CallOutcome.REFUSED
            return failure(self._words(error)), outcome
        unknown = sorted(values.keys() - self.arguments.model_fields.keys() - self.arguments.needless)
        answer = replace(answer, note=compact.sentences(answer.note, slip))
        result = answer.result(form, unknown)
        self._count(services, caller, answer, result, _project(projects, identity.offer.project))
        return result, CallOutcome.OK

    def _count(
        self, services: Services, caller: Caller, answer: Answer, result: CallToolResult, namespace: str
    ) -> None:
        """Counts the call, its results and tokens."""
        text = "\n".join(one.text for one in result.content if isinstance(one, TextContent))
        used = tokens.count(text)
        longer = 0 if result.structured_content else len(_dump_json(answer.data)) - len(text)
        saved = used * max(longer, 0) // max(len(text), 1)
        services.reads.count_call(caller, self.name, namespace, items=answer.items, used=used, saved=saved)

    async def _refusal(self, mode: str, ask: AskUser | None, *, confirmed: bool) -> str | None:
        """Returns why the tool may not write under this `mcp.write_mode`; None if it may, or does not write."""
        if mode == "auto" or not self.writes or (mode == "ask" and confirmed):
            return None
        if mode == "off":
            return f"Error: {self.name} is refused: assistants may not change memories here (mcp.write_mode is off)."
        if ask is None:
            return f"Error: Ask the user, then call {self.name} again with confirmed=true (mcp.write_mode is ask)."
        agreed = await ask(f"May the assistant change your memories? ({self.title})")
        return None if agreed else f"Error: The user did not agree to {self.name}."

    def _words(self, error: OpenMemoryError) -> str:
        words = error.message if error.hint is None else f"{error.message} {error.hint}"
        if isinstance(error, Forbidden | NotFound):
            return f"Error: {words}"
        if isinstance(error, Unavailable):
            return f"Error: Memory system is currently unavailable. Please try again later. {words}"
        return f"{self.failing}: {words}"


async def _near_miss(
    services: Services, caller: Caller, projects: Mapping[str, str], client: ClientProject
) -> str | None:
    """Returns a note that a project in a call does not exist, and that one with nearly this name does."""
    mine = () if client.name is None else (client.name,)
    for field, name in projects.items():
        if name in (ALL, PERSON, client.name):
            continue
        if (match := await services.projects.near(caller, name, field, mine)) is not None:
            other = one_word(match, "another project")
            return f"Nothing was known of the project {one_word(name, 'of this name')}. Did you mean {other}?"
    return None


def _project(projects: Mapping[str, str], client: ClientProject) -> str:
    """Returns the project that a call names. Without a name, it is the project of the client."""
    project = next((name for name in projects.values() if name not in (ALL, PERSON)), client.name)
    return project or PERSON


def failure(text: str) -> CallToolResult:
    """Returns an error that the model sees and can act on."""
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=True)


def _first(error: ValidationError) -> str:
    """Describes the first problem: the argument's name and what is wrong, never the value."""
    problem = error.errors(include_url=False, include_input=False, include_context=False)[0]
    return f"{'.'.join(str(part) for part in problem['loc']) or 'arguments'}: {problem['msg']}"


def _shorten(name: str) -> str:
    return compact.inline(name)[:60]


def _dump_json(value: Any) -> str:
    return exact_json.dumps(value).decode()


def _schema(model: type[BaseModel]) -> dict[str, Any]:
    schema = model.model_json_schema()
    schema.pop("description", None)
    small: dict[str, Any] = _small(schema)
    return small


def _small(value: Any) -> Any:
    """Returns a schema without what costs tokens and is of no use to a model: titles that pydantic derives from names,
    formats, and defaults that are empty."""
    if isinstance(value, list):
        return [_small(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("default", ...) is None and len(value.get("anyOf", ())) == 2:
        value = {**value["anyOf"][0], **{key: item for key, item in value.items() if key not in ("anyOf", "default")}}
    empty = {"title", "additionalProperties", "format"}
    if value.get("default", True) in ({}, [], False):
        empty.add("default")
    return {key: _small(item) for key, item in value.items() if key not in empty or isinstance(item, dict)}

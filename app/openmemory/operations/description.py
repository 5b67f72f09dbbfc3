"""The description of a use case, from which REST makes a route and the command line a command.

    @operation(
        "GET", "/api/v1/values", command="values list", tool="memory_list", tag="projects", speaker=Speaker.READER,
        errors=(403, 404),
    )
    async def list_values(services: Services, caller: Caller, *, topic: Topic | None = None) -> ValuePage:
        \"""List the values of a project, by topic and key.\"""
        return await services.values.list(caller, topic=topic)

The keyword parameters are what a request contains: the fields of the body, the parameters of the query and of the path,
and the arguments and options of the command. `Annotated[..., Field(...)]` gives each its words and bounds. The name of
the function is the id of the operation, and its docstring is the help.

The command line imports the modules of those operations that are commands by themselves. These know only the schemas
of features, which need no store.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from inspect import cleandoc
from types import ModuleType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Concatenate,
    Generic,
    Literal,
    ParamSpec,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic.fields import FieldInfo

from openmemory.memories.state import State
from openmemory.serialization.timestamps import TimeBound

if TYPE_CHECKING:
    from openmemory.access.directory import Belonging
    from openmemory.services import Services

W = TypeVar("W")
P = ParamSpec("P")
R = TypeVar("R")
NoteT = TypeVar("NoteT")

Method = Literal["GET", "POST", "PUT", "DELETE"]
Run = Callable[Concatenate["Services", W, P], Awaitable[R]]


class Speaker(Enum):
    """The kind of caller of a request. A request may name the user. Without a name, the user of the credential is
    meant, or the default user."""

    APP = "app"
    """An app of the user. Both are made on first use."""
    READER = "reader"
    """The user themself, or an app of theirs if the request names one."""
    OWNER = "owner"
    """The user themself."""
    EXISTING_OWNER = "existing_owner"
    """The user themself, who must exist."""
    NEW_OWNER = "new_owner"
    """The user themself, who is made on first use."""
    CREDENTIAL = "credential"
    """Nobody but the credential: the use case gets its principal."""

    @property
    def named(self) -> tuple[str, ...]:
        """The parameters with which a request names the caller."""
        match self:
            case Speaker.APP | Speaker.READER:
                return "user_id", "app"
            case Speaker.OWNER | Speaker.EXISTING_OWNER | Speaker.NEW_OWNER:
                return ("user_id",)
            case Speaker.CREDENTIAL:
                return ()


@dataclass(frozen=True, slots=True)
class MemoryReference:
    """Marks a parameter as the id of a memory: requests may give its first characters. The use case gets the id."""

    target: State = State.DELETED
    """The memory is one that the caller may move to this state; with the default one that they may read."""


class InCommand(Enum):
    """Marks how a command takes a parameter. Without a mark, a parameter with a default is an option, and another one
    an argument."""

    ARGUMENT = "argument"
    OPTION = "option"


@dataclass(frozen=True, slots=True)
class Parameter:
    """A keyword parameter of a use case."""

    name: str
    kind: Any
    """Its type, without `Annotated`."""
    notes: tuple[Any, ...]
    """The rest of `Annotated`."""
    default: Any

    @property
    def required(self) -> bool:
        """True if a request must contain it."""
        return self.default is inspect.Parameter.empty

    @property
    def words(self) -> FieldInfo:
        """Its description, examples and bounds."""
        return self.note(FieldInfo) or FieldInfo()

    def note(self, type_: type[NoteT]) -> NoteT | None:
        """Returns the note of this type, or None."""
        return next((one for one in self.notes if isinstance(one, type_)), None)


@dataclass(frozen=True)
class Operation(Generic[W, P, R]):
    """A use case with its route. Calling it calls the function, with the services and the caller first."""

    run: Run[W, P, R]
    method: Method
    path: str
    tag: str
    speaker: Speaker
    errors: tuple[int, ...]
    """The statuses of its error responses besides those of every operation."""
    status: int = 200
    """The status of its answer."""
    examples: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Examples of the body, by their names."""
    body: str = ""
    """The name of the body's schema; empty: that of the operation with `Body`."""
    query: tuple[str, ...] = ()
    """The parameters that are in the query although the method has a body."""
    owned: Belonging | None = None
    """The type of the object whose id is in the path, such as `grant` for `{grant_id}`. A request that names no user
    means its owner, if the credential speaks for every user."""
    in_timezone: bool = False
    """True if the time zone of the request makes a difference although no parameter is a `TimeBound`."""
    command: str = ""
    """The command that does it, such as `values set`; empty: there is none."""
    tool: str = ""
    """The MCP tool that does it; empty: there is none."""

    @property
    def name(self) -> str:
        """The id of the operation: the name of the function."""
        return self.run.__name__

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters of a request besides user and app, in the order of the signature."""
        signature = list(inspect.signature(self.run).parameters.values())[2:]
        return tuple(Parameter(one.name, *_parted(self._hints[one.name]), one.default) for one in signature)

    @property
    def result(self) -> Any:
        """The type of the answer."""
        return self._hints["return"]

    @cached_property
    def _hints(self) -> dict[str, Any]:
        unread = {"Services": Any, "Caller": Any, "Principal": Any}
        return get_type_hints(self.run, localns=unread, include_extras=True)

    @cached_property
    def depends_on_timezone(self) -> bool:
        """True if the time zone of the request makes a difference. The description then shows the parameter and the
        header that name it."""
        return self.in_timezone or any(TimeBound in _types_in(one.kind) for one in self.parameters)

    @property
    def in_path(self) -> tuple[str, ...]:
        """The names of the parameters in the path, in their order."""
        return tuple(re.findall(r"\{(\w+)", self.path))

    @property
    def has_body(self) -> bool:
        """True if it has a body. Its fields are user, app and the parameters that are neither in the path nor in the
        query."""
        fields = {*self.speaker.named, *(one.name for one in self.parameters)}
        return self.method in ("POST", "PUT") and not fields <= {*self.in_path, *self.query}

    @property
    def help(self) -> str:
        """The docstring, which says what the operation does."""
        return cleandoc(self.run.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        return " ".join(self.help.partition("\n\n")[0].split())

    async def __call__(self, services: Services, caller: W, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.run(services, caller, *args, **kwargs)


def operation(
    method: Method,
    path: str,
    *,
    tag: str,
    speaker: Speaker,
    errors: tuple[int, ...] = (),
    status: int = 200,
    example: Mapping[str, Any] | None = None,
    examples: Mapping[str, Mapping[str, Any]] | None = None,
    body: str = "",
    query: tuple[str, ...] = (),
    owned: Belonging | None = None,
    in_timezone: bool = False,
    command: str = "",
    tool: str = "",
) -> Callable[[Run[W, P, R]], Operation[W, P, R]]:
    """Describes the function below as an operation. `example`: the only one of the `examples`. See the module."""
    shown = examples or ({"an example": example} if example else {})

    def described(run: Run[W, P, R]) -> Operation[W, P, R]:
        return Operation(
            run, method, path, tag, speaker, errors, status, shown, body, query, owned, in_timezone, command, tool
        )  # fmt: skip

    return described


def operations_of(module: ModuleType) -> list[Operation[Any, Any, Any]]:
    """Returns the operations that a module describes, in their order."""
    return [one for one in vars(module).values() if isinstance(one, Operation)]


def _types_in(kind: Any) -> set[Any]:
    """Returns the types that a type is made of."""
    parts = [one for one in get_args(kind) if isinstance(one, type) or get_args(one)]
    return {kind}.union(*map(_types_in, parts)) if parts else {kind}


def _parted(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    """Returns a type without `Annotated`, and the notes of that."""
    if get_origin(kind) is not Annotated:
        return kind, ()
    first, *notes = get_args(kind)
    return first, tuple(notes)

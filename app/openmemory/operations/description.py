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

The command line imports these modules. They know only the schemas of features, which need no store.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from inspect import cleandoc
from types import ModuleType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, Literal, ParamSpec, TypeVar

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

P = ParamSpec("P")
R = TypeVar("R")

Method = Literal["GET", "POST", "PUT", "DELETE"]
Run = Callable[Concatenate["Services", "Caller", P], Awaitable[R]]


class Speaker(Enum):
    """The kind of caller of a request. A request may name the user. Without a name, the user of the credential is
    meant, or the default user."""

    APP = "app"
    """An app of the user. Both are made on first use."""
    READER = "reader"
    """The user themself, or an app of theirs if the request names one."""
    OWNER = "owner"
    """The user themself."""


@dataclass(frozen=True, slots=True)
class MemoryReference:
    """Marks a parameter as the id of a memory: requests may give its first characters. The use case gets the id."""


@dataclass(frozen=True)
class Operation(Generic[P, R]):
    """A use case with its route. Calling it calls the function, with the services and the caller first."""

    run: Run[P, R]
    method: Method
    path: str
    tag: str
    speaker: Speaker
    errors: tuple[int, ...]
    """The statuses of its error responses besides those of every operation."""
    example: Mapping[str, Any] = field(default_factory=dict)
    """An example of the body."""
    body: str = ""
    """The name of the body's schema; empty: that of the operation with `Body`."""
    command: str = ""
    """The command that does it, such as `values set`; empty: there is none."""
    tool: str = ""
    """The MCP tool that does it; empty: there is none."""

    @property
    def name(self) -> str:
        """The id of the operation: the name of the function."""
        return self.run.__name__

    @property
    def has_body(self) -> bool:
        """True if the parameters that are not in the path are fields of a body; otherwise they are in the query."""
        return self.method in ("POST", "PUT")

    @property
    def help(self) -> str:
        """The docstring, which says what the operation does."""
        return cleandoc(self.run.__doc__ or "")

    @property
    def summary(self) -> str:
        """The first paragraph of the docstring."""
        return " ".join(self.help.partition("\n\n")[0].split())

    async def __call__(self, services: Services, caller: Caller, *args: P.args, **kwargs: P.kwargs) -> R:
        return await self.run(services, caller, *args, **kwargs)


def operation(
    method: Method,
    path: str,
    *,
    tag: str,
    speaker: Speaker,
    errors: tuple[int, ...] = (),
    example: Mapping[str, Any] | None = None,
    body: str = "",
    command: str = "",
    tool: str = "",
) -> Callable[[Run[P, R]], Operation[P, R]]:
    """Describes the function below as an operation. See the module."""

    def described(run: Run[P, R]) -> Operation[P, R]:
        return Operation(run, method, path, tag, speaker, errors, example or {}, body, command, tool)

    return described


def operations_of(module: ModuleType) -> list[Operation[Any, Any]]:
    """Returns the operations that a module describes, in their order."""
    return [one for one in vars(module).values() if isinstance(one, Operation)]

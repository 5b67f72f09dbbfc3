"""Makes a command of an operation: `openmemory.operations` describes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from enum import Enum
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, get_args, get_origin
from uuid import UUID

import typer

from openmemory.cli import project
from openmemory.cli.client import Client, connected, path_part
from openmemory.cli.options import SCOPE, App, AsApp, PageNumber, Rows, Since, User
from openmemory.cli.output import CommandAnswer
from openmemory.operations.description import InCommand, Operation, Parameter, Speaker

Show = Callable[[Any, dict[str, Any]], CommandAnswer]
"""Makes the answer for people of what REST returned and of what the user gave."""

_APPS = {Speaker.APP: App, Speaker.READER: AsApp}
Project = Annotated[
    str | None,
    typer.Option(
        "--namespace", metavar="NAME", help="The project; default: that of the folder.", rich_help_panel=SCOPE
    ),
]

_SHARED: dict[str, tuple[str, Any]] = {
    "namespace": ("namespace", Project),
    "page": ("page", PageNumber),
    "since": ("since", Since),
    "size": ("limit", Rows),
}
"""The options that are the same in all commands, by the name of the parameter."""

_OPTIONS = {"user_id": "user"} | {name: option for name, (option, _) in _SHARED.items()}
"""The names of options that are not those of their parameters."""


def command(operation: Operation[Any, Any, Any], show: Show) -> Callable[..., None]:
    """Returns the command of an operation. Parameters without a default are arguments, in their order.

    A namespace that is not given is that of the folder.
    """
    shared: dict[str, Any] = {} if operation.speaker is Speaker.CREDENTIAL else {"user_id": User}
    if operation.speaker in _APPS:
        shared["app"] = _APPS[operation.speaker]
    called = {name: _OPTIONS.get(name, name) for name in (*(one.name for one in operation.parameters), *shared)}

    async def run(client: Client, /, **given: Any) -> CommandAnswer:
        request = {name: given[option] for name, option in called.items()}
        if "namespace" in request:
            request["namespace"] = project.here(given["namespace"])
        path = re.sub(r"\{(\w+)(:path)?\}", lambda part: path_part(str(request.pop(part[1]))), operation.path)
        if not operation.has_body:
            return show(await client.call(operation.method, path, params=request), given)
        query = {name: request.pop(name) for name in operation.query}
        return show(await client.call(operation.method, path, params=query, body=request), given)

    own = [_parameter(one) for one in operation.parameters]
    own += [_keyword(called[name], kind, None) for name, kind in shared.items()]
    first = inspect.Parameter("client", inspect.Parameter.POSITIONAL_ONLY, annotation=Client)
    # Typer takes arguments in the order of the signature.
    signature = inspect.Signature([first, *own], return_annotation=CommandAnswer)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = operation.name, operation.summary
    return connected(run)


def add(group: typer.Typer, operation: Operation[Any, Any, Any], show: Show) -> None:
    """Adds the command of an operation to its group, under the last word of its name."""
    group.command(operation.command.rpartition(" ")[2])(command(operation, show))


def _parameter(one: Parameter) -> inspect.Parameter:
    """Returns a parameter as Typer takes it."""
    option = _OPTIONS.get(one.name, one.name)
    if one.name in _SHARED:
        return _keyword(option, _SHARED[one.name][1], None if one.name == "namespace" else one.default)
    choices = get_args(one.kind) if get_origin(one.kind) is Literal else ()
    text, base = _help(one), _as_text(one.kind)
    if (one.note(InCommand) or (InCommand.ARGUMENT if one.required else InCommand.OPTION)) is InCommand.ARGUMENT:
        text = " ".join(part for part in (text, f"One of {', '.join(choices)}." if choices else "") if part)
        metavar = one.name.removesuffix("_id").upper()
        return _keyword(option, Annotated[base, typer.Argument(metavar=metavar, help=text)], one.default)
    flags = [f"--{option.replace('_', '-')}"]
    if base is bool:
        return _keyword(option, Annotated[base, typer.Option(*flags, help=text)], one.default)
    metavar = "|".join(choices) or ("N" if base is int or int in get_args(base) else "NAME")
    return _keyword(option, Annotated[base, typer.Option(*flags, metavar=metavar, help=text)], one.default)


def _help(parameter: Parameter) -> str:
    """Returns the description of a parameter, with an example if that is short."""
    words = parameter.words
    example = f"Such as {words.examples[0]}." if words.examples and len(str(words.examples[0])) < 20 else ""
    return " ".join(part for part in (words.description, example) if part)


def _as_text(kind: Any) -> Any:
    """Returns a type with text in the place of ids and choices. The service checks them, and takes the first characters
    of some ids."""
    if get_origin(kind) is Literal or (isinstance(kind, type) and issubclass(kind, UUID | Enum)):
        return str
    if get_origin(kind) is list:
        return list[_as_text(get_args(kind)[0])]  # type: ignore[misc]
    if get_origin(kind) is UnionType:
        return reduce(or_, map(_as_text, get_args(kind)))
    return kind


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

"""Makes a command of an operation: `openmemory.operations` describes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import EnumType
from functools import reduce
from operator import or_
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import typer

from openmemory.doors.cli import scope
from openmemory.doors.cli.client import Client, connected, path_part
from openmemory.doors.cli.options import (
    About,
    AllProjects,
    App,
    AsApp,
    At,
    ExpiresAt,
    Namespace,
    PageNumber,
    Rows,
    Since,
    Until,
    User,
)
from openmemory.doors.cli.output import CommandAnswer, confirm
from openmemory.operations.description import InCommand, Operation, Parameter, Speaker

Show = Callable[[Any, dict[str, Any]], CommandAnswer]
"""Makes the answer for people of what REST returned and of what the user gave."""

Ask = Callable[[Client, dict[str, Any]], Awaitable[str | None]]
"""Makes a question of what the user gave; None: there is nothing to ask."""

_APPS = {Speaker.APP: App, Speaker.READER: AsApp}
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]

_SHARED: dict[str, tuple[str, Any]] = {
    "at": ("at", At),
    "expires_at": ("expires_at", ExpiresAt),
    "from_date": ("since", Since),
    "namespace": ("namespace", Namespace),
    "page": ("page", PageNumber),
    "since": ("since", Since),
    "size": ("limit", Rows),
    "to_date": ("until", Until),
    "until": ("until", Until),
}
"""The options that are the same in all commands, by the name of the parameter."""

_OPTIONS = {
    "categories": "category", "kinds": "kind", "namespaces": "namespace", "states": "state", "threads": "thread",
    "user_id": "user",
} | {name: option for name, (option, _) in _SHARED.items()}  # fmt: skip
"""The names of options that are not those of their parameters. A list is an option that may be repeated."""

_FEW = 8
"""The number of choices that the help names."""


def command(
    operation: Operation[Any, Any, Any], show: Show, ask: Ask | None = None, **defaults: Any
) -> Callable[..., None]:
    """Returns the command of an operation. Parameters without a default are arguments, in their order.

    Without an option, the project is that of the folder. Several are read as `scope.read` says. `ask` makes the
    question that must be confirmed, if any. `defaults`: of parameters, where that of the command is another one.
    """
    shared: dict[str, Any] = {} if operation.speaker is Speaker.CREDENTIAL else {"user_id": User}
    if operation.speaker in _APPS:
        shared["app"] = _APPS[operation.speaker]
    parameters = [replace(one, default=defaults.get(one.name, one.default)) for one in operation.parameters]
    option_names = {name: _OPTIONS.get(name, name) for name in (*(one.name for one in parameters), *shared)}
    selector = _find_selector(operation)
    takes_all = "namespaces" in option_names or (selector is not None and not selector.default)

    async def run(client: Client, /, **arguments: Any) -> CommandAnswer:
        request = {name: arguments[option] for name, option in option_names.items()}
        if selector is not None:
            namespaces = scope.read(
                arguments["namespace"], all_projects=arguments["all_projects"] if takes_all else None
            )
            request["namespace"] = namespaces or selector.default
        elif "namespace" in request:
            request["namespace"] = scope.target(arguments["namespace"], arguments.get("about"))
        if "namespaces" in request and not arguments.get("memory_ids"):  # ids need no project
            request["namespaces"] = scope.selection(arguments["namespace"], all_projects=arguments["all_projects"])
        if ask is not None and (question := await ask(client, arguments)):
            confirm(question, arguments["yes"])
        path = re.sub(r"\{(\w+)(:path)?\}", lambda part: path_part(str(request.pop(part[1]))), operation.path)
        if not operation.has_body:
            return show(await client.call(operation.method, path, params=request), arguments)
        query = {name: request.pop(name) for name in operation.query}
        return show(await client.call(operation.method, path, params=query, body=request), arguments)

    own = [_keyword(option_names[name], kind, None) for name, kind in shared.items()]
    own += [_parameter(one) for one in parameters]
    own += [_keyword("about", About, None)] if operation.speaker is Speaker.APP and "namespace" in option_names else []
    own += [_keyword("all_projects", AllProjects, False)] if takes_all else []
    own += [_keyword("yes", Yes, False)] if ask else []
    first = inspect.Parameter("client", inspect.Parameter.POSITIONAL_ONLY, annotation=Client)
    # Typer takes arguments in the order of the signature.
    signature = inspect.Signature([first, *own], return_annotation=CommandAnswer)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = operation.name, operation.summary
    return connected(run)


def add(
    group: typer.Typer, operation: Operation[Any, Any, Any], show: Show, ask: Ask | None = None, **defaults: Any
) -> None:
    """Adds the command of an operation to its group, under the last word of its name."""
    group.command(operation.command.rpartition(" ")[2])(command(operation, show, ask, **defaults))


def _find_selector(operation: Operation[Any, Any, Any]) -> Parameter | None:
    """Returns the parameter with the projects that an operation reads, if it reads several."""
    several = (one for one in operation.parameters if one.name == "namespace" and _is_list(one.kind))
    return next(several, None) if operation.method == "GET" else None


def _parameter(one: Parameter) -> inspect.Parameter:
    """Returns a parameter as Typer takes it."""
    option = _OPTIONS.get(one.name, one.name)
    if one.name in _SHARED:
        return _keyword(option, _SHARED[one.name][1], None if one.name == "namespace" else one.default)
    choices = _choices(one.kind)
    text, base = _help(one), _as_text(one.kind)
    if (one.note(InCommand) or (InCommand.ARGUMENT if one.required else InCommand.OPTION)) is InCommand.ARGUMENT:
        text = " ".join(part for part in (text, f"One of {', '.join(choices)}." if choices else "") if part)
        metavar = one.name.removesuffix("s").removesuffix("_id").upper()
        return _keyword(option, Annotated[base, typer.Argument(metavar=metavar, help=text)], one.default)
    if _is_list(one.kind):
        text = f"{text} May be repeated."
    flags = [f"--{option.replace('_', '-')}"]
    if base is bool:
        return _keyword(option, Annotated[base, typer.Option(*flags, help=text)], one.default)
    metavar = "|".join(choices) or ("N" if base is int or int in get_args(base) else "NAME")
    return _keyword(option, Annotated[base, typer.Option(*flags, metavar=metavar, help=text)], one.default)


def _is_list(kind: Any) -> bool:
    return any(get_origin(each) in (list, tuple) for each in (kind, *get_args(kind)))


def _choices(kind: Any) -> tuple[str, ...]:
    """Returns the texts that a type allows, if it is a choice of few."""
    if get_origin(kind) is Literal:
        return get_args(kind)
    if isinstance(kind, EnumType) and len(kind) <= _FEW:
        return tuple(map(str, kind))
    return next(filter(None, map(_choices, get_args(kind))), ())


def _help(parameter: Parameter) -> str:
    """Returns the description of a parameter, with an example if that is short."""
    words = parameter.words
    example = f"Such as {words.examples[0]}." if words.examples and len(str(words.examples[0])) < 20 else ""
    return " ".join(part for part in (words.description, example) if part)


def _as_text(kind: Any) -> Any:
    """Returns a type with text in the place of ids, times and choices. The service checks them, and takes the first
    characters of some ids."""
    if get_origin(kind) is Annotated:
        return _as_text(get_args(kind)[0])
    if get_origin(kind) is list:
        return list[_as_text(get_args(kind)[0])]  # type: ignore[misc]
    if get_origin(kind) in (UnionType, Union):
        return reduce(or_, map(_as_text, get_args(kind)))
    return kind if kind in (bool, int, float, NoneType) else str


def _keyword(name: str, kind: Any, default: Any) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

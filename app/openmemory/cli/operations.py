"""Makes a command of an operation: `openmemory.operations` describes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints
from uuid import UUID

import typer
from pydantic.fields import FieldInfo

from openmemory.cli import project
from openmemory.cli.client import Client, connected, path_part
from openmemory.cli.options import SCOPE, App, AsApp, PageNumber, Rows, User
from openmemory.cli.output import CommandAnswer
from openmemory.operations.description import Operation, Speaker

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
    "size": ("limit", Rows),
}
"""The options that are the same in all commands, by the name of the parameter."""


def command(operation: Operation[Any, Any], show: Show) -> Callable[..., None]:
    """Returns the command of an operation. Parameters without a default are arguments, in their order.

    A namespace that is not given is that of the folder.
    """
    hints = get_type_hints(operation.run, localns={"Services": Any, "Caller": Any}, include_extras=True)
    parameters = list(inspect.signature(operation.run).parameters.values())[2:]
    called = {one.name: _SHARED.get(one.name, (one.name, None))[0] for one in parameters}

    async def run(client: Client, /, **given: Any) -> CommandAnswer:
        request = {name: given[option] for name, option in called.items()}
        request |= {"user_id": given["user"], "app": given.get("app")}
        if "namespace" in request:
            request["namespace"] = project.here(given["namespace"])
        path = re.sub(r"\{(\w+)(:path)?\}", lambda part: _filled(request.pop(part[1]), part[2]), operation.path)
        if operation.has_body:
            return show(await client.call(operation.method, path, body=request), given)
        return show(await client.call(operation.method, path, params=request), given)

    taken = {"user": (User, None)}
    if operation.speaker in _APPS:
        taken["app"] = (_APPS[operation.speaker], None)
    own = [_parameter(called[one.name], hints[one.name], one) for one in parameters]
    own += [_keyword(name, kind, default) for name, (kind, default) in taken.items()]
    first = inspect.Parameter("client", inspect.Parameter.POSITIONAL_ONLY, annotation=Client)
    # Typer takes arguments in the order of the signature.
    signature = inspect.Signature([first, *own], return_annotation=CommandAnswer)
    run.__signature__ = signature  # type: ignore[attr-defined]
    run.__name__, run.__doc__ = operation.name, operation.summary
    return connected(run)


def add(group: typer.Typer, operation: Operation[Any, Any], show: Show) -> None:
    """Adds the command of an operation to its group, under the last word of its name."""
    group.command(operation.command.rpartition(" ")[2])(command(operation, show))


def _filled(value: Any, whole: str | None) -> str:
    return path_part(str(value), "/" if whole else "")


def _parameter(name: str, kind: Any, parameter: inspect.Parameter) -> inspect.Parameter:
    """Returns a parameter as Typer takes it."""
    if parameter.name in _SHARED:
        default = None if parameter.name == "namespace" else parameter.default
        return _keyword(name, _SHARED[parameter.name][1], default)
    base, *notes = get_args(kind) if get_origin(kind) is Annotated else (kind,)
    words = next((note for note in notes if isinstance(note, FieldInfo)), FieldInfo())
    example = f"Such as {words.examples[0]}." if words.examples and len(str(words.examples[0])) < 20 else ""
    text = " ".join(part for part in (words.description, example) if part)
    choices = "|".join(get_args(base)) if get_origin(base) is Literal else None
    base = _as_text(base)
    if parameter.default is inspect.Parameter.empty:
        argument = typer.Argument(metavar=choices or name.upper(), help=text)
        return _keyword(name, Annotated[base, argument])
    metavar = choices or ("N" if base is int or int in get_args(base) else "NAME")
    return _keyword(name, Annotated[base, typer.Option(metavar=metavar, help=text)], parameter.default)


def _as_text(kind: Any) -> Any:
    """Returns a type with text in the place of ids and choices. The service checks them, and takes the first characters
    of some ids."""
    if kind is UUID or get_origin(kind) is Literal:
        return str
    if get_origin(kind) is list:
        return list[_as_text(get_args(kind)[0])]  # type: ignore[misc]
    return str | None if kind == UUID | None else kind


def _keyword(name: str, kind: Any, default: Any = inspect.Parameter.empty) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)

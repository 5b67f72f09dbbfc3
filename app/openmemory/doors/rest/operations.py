"""Makes a route of each operation: `openmemory.operations` describes them."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import NoneType
from typing import Annotated, Any, get_args, get_origin
from urllib.parse import quote, unquote

from fastapi import Body, Path, Query, Request
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from openmemory.doors.rest.http.caller import (
    AS_APP,
    LEFT_OUT,
    WHOSE,
    WHOSE_MEMORY,
    AuthenticatedRequest,
    GivenId,
    TheAsking,
    TheServices,
)
from openmemory.doors.rest.http.errors import NOT_STORED, documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.http.zones import InTimezone
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Principal
from openmemory.operations.batches import BatchReport
from openmemory.operations.description import MemoryReference, Operation, Parameter, Speaker
from openmemory.services import Services

_REQUIRED = inspect.Parameter.empty
_NAME = str | None
_USER = Parameter("user_id", _NAME, (Field(description=f"The user's name; {LEFT_OUT}"),), None)
_OWNER = Parameter("user_id", _NAME, (Field(description=WHOSE),), None)
_OWNER_OF_MEMORY = Parameter("user_id", _NAME, (Field(description=WHOSE_MEMORY),), None)
_APPS = {
    Speaker.APP: Parameter(
        "app", _NAME, (Field(description="The app that does it; left out: the credential's."),), None
    ),
    Speaker.READER: Parameter("app", _NAME, (Field(description=AS_APP),), None),
}


def router(operations: Iterable[Operation[Any, Any, Any]], *, described: bool = True) -> Router:
    """Returns the routes of these operations. `described`: OpenAPI shows them."""
    routes = Router("")
    for one in operations:
        routes.add_api_route(
            one.path, _endpoint(one), methods=[one.method], name=one.name, tags=[one.tag], status_code=one.status,
            description=one.help, responses=documented(*one.errors) | (NOT_STORED if _is_batch(one) else {}),
            dependencies=[InTimezone] if one.depends_on_timezone else [], include_in_schema=described,
        )  # fmt: skip
    return routes


def _is_batch(operation: Operation[Any, Any, Any]) -> bool:
    return isinstance(operation.result, type) and issubclass(operation.result, BatchReport)


def _endpoint(operation: Operation[Any, Any, Any]) -> Callable[..., Awaitable[Any]]:
    """Returns the function that FastAPI calls, with the parameters of the operation in its signature."""
    owners = {None: _USER, "memory": _OWNER_OF_MEMORY}
    names = [] if operation.speaker is Speaker.CREDENTIAL else [owners.get(operation.owned, _OWNER)]
    names += [_APPS[operation.speaker]] if operation.speaker in _APPS else []
    signature = [_parameter("services", TheServices), _parameter("asking", TheAsking), _parameter("request", Request)]
    fields = []
    for one in (*names, *operation.parameters):
        if one.name in operation.in_path:
            signature.append(_parameter(one.name, _place(one, Path)))
        elif operation.has_body and one.name not in operation.query:
            fields.append(one)
        else:
            signature.append(_parameter(one.name, _place(one, Query), one.default))
    if fields:
        body = Body(openapi_examples={name: {"value": dict(value)} for name, value in operation.examples.items()})
        signature.append(_parameter("body", Annotated[_body(operation, fields), body]))

    async def endpoint(services: Services, asking: AuthenticatedRequest, request: Request, **arguments: Any) -> Any:
        if (body := arguments.pop("body", None)) is not None:
            arguments |= {one.name: getattr(body, one.name) for one in fields}
        if operation.path.endswith(":path}"):
            arguments |= _in_path(request, operation, arguments)
        caller = await _caller(operation, asking, {one.name: arguments.pop(one.name) for one in names}, arguments)
        if isinstance(caller, Caller):
            if operation.method == "GET":
                caller.may_read()
            arguments |= await _memories(operation, services, caller, arguments)
        return await operation(services, caller, **arguments)

    endpoint.__name__ = operation.name
    endpoint.__signature__ = inspect.Signature(signature, return_annotation=operation.result)  # type: ignore[attr-defined]
    return endpoint


async def _memories(
    operation: Operation[Any, Any, Any], services: Services, caller: Caller, arguments: dict[str, Any]
) -> dict[str, Any]:
    """Returns the ids of the memories that a request names, by parameter."""
    memory_ids: dict[str, Any] = {}
    for one in operation.parameters:
        reference, value = one.note(MemoryReference), arguments[one.name]
        if reference is not None and value is not None:
            ids = value if isinstance(value, list) else [value]
            ids = await services.short_ids.resolved(caller, ids, one.name, reference.target)
            memory_ids[one.name] = ids if isinstance(value, list) else ids[0]
    return memory_ids


def _in_path(request: Request, operation: Operation[Any, Any, Any], values: Mapping[str, str]) -> dict[str, str]:
    """Returns the parameters in the path, the last of which takes the rest of it without a trailing slash.

    A percent-encoded slash belongs to the name that contains it. `values`: the parameters as the router read them.
    """
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    _, prefix, rest = raw.decode("utf-8", "replace").partition(operation.path.partition("{")[0])
    names = operation.in_path
    parts = rest.removesuffix("/").split("/", len(names) - 1)
    if not prefix or len(parts) < len(names):
        return {name: values[name] for name in names}
    return dict(zip(names, map(unquote, parts), strict=True))


async def _caller(
    operation: Operation[Any, Any, Any], asking: AuthenticatedRequest, names: dict[str, Any], arguments: dict[str, Any]
) -> Caller | Principal:
    user, app = names.get("user_id"), names.get("app")
    if operation.owned is not None:
        return await asking.as_owner_or_app_of(operation.owned, arguments[f"{operation.owned}_id"], user, app)
    reads = operation.method == "GET"
    match operation.speaker:
        case Speaker.APP:
            return await asking.as_app(user, app)
        case Speaker.READER:
            return await (asking.as_reader(user, app) if reads else asking.as_owner_or_app(user, app))
        case Speaker.OWNER:
            return await (asking.as_reader(user) if reads else asking.as_owner(user))
        case Speaker.EXISTING_OWNER | Speaker.NEW_OWNER:
            return await asking.as_owner(user, make=operation.speaker is Speaker.NEW_OWNER)
        case Speaker.CREDENTIAL:
            return asking.principal


def _body(operation: Operation[Any, Any, Any], fields: list[Parameter]) -> type[BaseModel]:
    """Returns the model of the body, such as `SetValueBody` of `set_value`."""
    name = operation.body or "".join(part.capitalize() for part in operation.name.split("_")) + "Body"
    definitions = {one.name: (_annotate(one, one.notes), ... if one.required else one.default) for one in fields}
    model: type[BaseModel] = create_model(  # type: ignore[call-overload]
        name, __config__=ConfigDict(extra="forbid"), __doc__=operation.summary, **definitions
    )
    return model


def _parameter(name: str, kind: Any, default: Any = _REQUIRED) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _annotate(parameter: Parameter, notes: Sequence[Any]) -> Any:
    """Returns the type of a parameter in a request: the id of a memory may be its first characters."""
    kind: Any = parameter.kind
    if parameter.note(MemoryReference) is not None:
        kind = _references(kind)
    return Annotated[(kind, *notes)] if notes else kind


def _references(kind: Any) -> Any:
    """Returns a type of one id, of several, or of none, with the ids as requests give them."""
    if get_origin(kind) is list:
        return list[GivenId]
    return _references(get_args(kind)[0]) | None if NoneType in get_args(kind) else GivenId


def _place(parameter: Parameter, place: Callable[..., Any]) -> Any:
    """Returns the type of a parameter of the path or the query, with its words."""
    words = parameter.words
    described = place(alias=words.alias, description=words.description, examples=words.examples)
    others = [one for one in parameter.notes if not isinstance(one, FieldInfo)]
    return _annotate(parameter, [*others, *words.metadata, described])

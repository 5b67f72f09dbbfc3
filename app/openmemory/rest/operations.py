"""Makes a route of each operation: `openmemory.operations` describes them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Iterable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field, create_model
from pydantic.fields import FieldInfo

from openmemory.identity.caller import Caller
from openmemory.operations.description import MemoryReference, Operation, Speaker
from openmemory.rest.caller import AS_APP, LEFT_OUT, AuthenticatedRequest, GivenId, TheAsking, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.services import Services

_REQUIRED = inspect.Parameter.empty
_USER = Annotated[str | None, Field(description=f"The user's name; {LEFT_OUT}")]
_APPS = {
    Speaker.APP: Annotated[str | None, Field(description="The app that does it; left out: the credential's.")],
    Speaker.READER: Annotated[str | None, Field(description=AS_APP)],
}


def router(operations: Iterable[Operation[Any, Any]]) -> Router:
    """Returns the routes of these operations."""
    made = Router("")
    for one in operations:
        made.add_api_route(
            one.path, _endpoint(one), methods=[one.method], name=one.name, tags=[one.tag],
            description=one.help, responses=documented(*one.errors),
        )  # fmt: skip
    return made


def _endpoint(operation: Operation[Any, Any]) -> Callable[..., Awaitable[Any]]:
    """Returns the function that FastAPI calls, with the parameters of the operation in its signature."""
    hints = get_type_hints(operation.run, localns={"Services": Services, "Caller": Caller}, include_extras=True)
    parameters = list(inspect.signature(operation.run).parameters.values())[2:]
    memories = [one.name for one in parameters if _is_memory(hints[one.name])]
    place: dict[str, tuple[Any, Any]] = {"user_id": (_USER, None)}
    if operation.speaker in _APPS:
        place["app"] = (_APPS[operation.speaker], None)
    fields = place | {one.name: (_requested(hints[one.name]), one.default) for one in parameters}
    in_path = {name: fields.pop(name) for name in re.findall(r"\{(\w+)", operation.path)}
    signature = [_parameter("services", TheServices), _parameter("asking", TheAsking)]
    signature += [_parameter(name, _placed(kind, Path)) for name, (kind, _) in in_path.items()]
    if operation.has_body:
        body = Body(openapi_examples={"an example": {"value": dict(operation.example)}})
        signature.append(_parameter("body", Annotated[_body(operation, fields), body]))
    else:
        signature += [_parameter(name, _placed(kind, Query), default) for name, (kind, default) in fields.items()]

    async def endpoint(services: Services, asking: AuthenticatedRequest, **given: Any) -> Any:
        if (body := given.pop("body", None)) is not None:
            given |= {name: getattr(body, name) for name in fields}
        caller = await _caller(operation.speaker, asking, given.pop("user_id"), given.pop("app", None))
        for name in memories:
            many = isinstance(given[name], list)
            ids = await services.short_ids.resolved(caller, given[name] if many else [given[name]], name)
            given[name] = ids if many else ids[0]
        return await operation(services, caller, **given)

    endpoint.__name__ = operation.name
    endpoint.__signature__ = inspect.Signature(signature, return_annotation=hints["return"])  # type: ignore[attr-defined]
    return endpoint


async def _caller(speaker: Speaker, asking: AuthenticatedRequest, user: str | None, app: str | None) -> Caller:
    match speaker:
        case Speaker.APP:
            return await asking.as_app(user, app)
        case Speaker.READER:
            return await asking.as_owner_or_app(user, app)
        case Speaker.OWNER:
            return await asking.as_owner(user)


def _body(operation: Operation[Any, Any], fields: dict[str, tuple[Any, Any]]) -> type[BaseModel]:
    """Returns the model of the body, such as `SetValueBody` of `set_value`."""
    name = operation.body or "".join(part.capitalize() for part in operation.name.split("_")) + "Body"
    required = {name: (kind, ... if default is _REQUIRED else default) for name, (kind, default) in fields.items()}
    made: type[BaseModel] = create_model(  # type: ignore[call-overload]
        name, __config__=ConfigDict(extra="forbid"), __doc__=operation.summary, **required
    )
    return made


def _parameter(name: str, kind: Any, default: Any = _REQUIRED) -> inspect.Parameter:
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, annotation=kind, default=default)


def _is_memory(kind: Any) -> bool:
    return get_origin(kind) is Annotated and any(isinstance(one, MemoryReference) for one in get_args(kind))


def _requested(kind: Any) -> Any:
    """Returns the type of a parameter in a request: the id of a memory may be its first characters."""
    if not _is_memory(kind):
        return kind
    first, *notes = get_args(kind)
    notes = [one for one in notes if not isinstance(one, MemoryReference)]
    given = list[GivenId] if get_origin(first) is list else GivenId
    return Annotated[(given, *notes)] if notes else given


def _placed(kind: Any, place: Callable[..., Any]) -> Any:
    """Returns a type whose `Field` has become a parameter of the path or the query."""
    if get_origin(kind) is not Annotated:
        return Annotated[kind, place()]
    first, *notes = get_args(kind)
    words: dict[str, Any] = {}
    kept: list[Any] = []
    for one in notes:
        if isinstance(one, FieldInfo):
            words |= {"description": one.description, "examples": one.examples}
            kept += one.metadata
        else:
            kept.append(one)
    return Annotated[(first, *kept, place(**words))]

"""REST endpoints for values: texts under a topic and a key, one for each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import Body, Path, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.projects.schemas import NewValue, StoredValue, ValuePage, ValueSet
from openmemory.rest.caller import AskingApp, BodyUser, TheAsking, TheServices, UserId
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.state import Project

router = Router("/api/v1/values", "projects")

Topic = Annotated[str, Path(examples=["stack"])]
Key = Annotated[str, Path(description="It may contain slashes.", examples=["database"])]


class ValueBody(BaseModel):
    """A value to remember under a topic and a key."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that sets it; left out: the credential's.")
    namespace: str = Field(default="default", description="The project.")
    topic: str = Field(description="Without a slash.", examples=["stack"])
    key: str = Field(examples=["database"])
    value: str = Field(examples=["PostgreSQL 17, because of its row locks."])


class ValueDeleted(BaseModel):
    """The value that was deleted. `restore` of memories brings it back."""

    id: str


_SET: dict[str, Any] = {
    "a value": {
        "value": {
            "user_id": "alice",
            "namespace": "acme/shop",
            "topic": "stack",
            "key": "database",
            "value": "PostgreSQL 17, because of its row locks.",
        }
    }
}


@router.put("", responses=documented(403, 404, 409, 413))
async def set_value(
    services: TheServices, asking: TheAsking, new: Annotated[ValueBody, Body(openapi_examples=_SET)]
) -> ValueSet:
    """Remember a value. It replaces the one under this topic and key, if there is one.

    A value is a memory of the kind `keyed` with the text `topic/key: value`, so that every search finds it.
    """
    caller = await asking.as_app(new.user_id, new.app)
    return await services.values.set(caller, NewValue(new.topic, new.key, new.value, new.namespace))


@router.get("", responses=documented(403, 404))
async def list_values(
    services: TheServices,
    asking: TheAsking,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Project = "default",
    topic: Annotated[str | None, Query(description="Only this topic.")] = None,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=100)] = 50,
) -> ValuePage:
    """List the values of a project, by topic and key."""
    caller = await asking.as_owner_or_app(user_id, app)
    return await services.values.list(caller, namespace=namespace, topic=topic, page=page, size=size)


@router.get("/{topic}/{key:path}", responses=documented(403, 404))
async def read_value(
    services: TheServices,
    asking: TheAsking,
    topic: Topic,
    key: Key,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Project = "default",
) -> StoredValue:
    """Read the value under a topic and a key."""
    return await services.values.get(await asking.as_owner_or_app(user_id, app), topic, key, namespace)


@router.delete("/{topic}/{key:path}", responses=documented(403, 404))
async def delete_value(
    services: TheServices,
    asking: TheAsking,
    topic: Topic,
    key: Key,
    *,
    user_id: UserId = None,
    app: AskingApp = None,
    namespace: Project = "default",
) -> ValueDeleted:
    """Soft-delete the value under a topic and a key."""
    caller = await asking.as_owner_or_app(user_id, app)
    return ValueDeleted(id=str(await services.values.delete(caller, topic, key, namespace)))

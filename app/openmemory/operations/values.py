"""Values of a project: texts under a topic and a key, one for each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import PageNumber, PageSize, Project, Projects
from openmemory.projects.schemas import NewValue, StoredValue, ValueDeleted, ValuePage, ValueSet

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "projects"
PATH = "/api/v1/values"
ONE = f"{PATH}/{{topic}}/{{key:path}}"

Topic = Annotated[str, Field(description="A group of keys.", examples=["stack"])]
Key = Annotated[str, Field(description="It may contain slashes.", examples=["database"])]
Value = Annotated[str, Field(description="The text.", examples=["PostgreSQL 17, because of its row locks."])]
OnlyTopic = Annotated[str | None, Field(description="Only this topic.")]


@operation(
    "PUT", PATH, command="values set", tool="memory_set", tag=TAG, speaker=Speaker.APP, errors=(403, 404, 409, 413),
    body="ValueBody", example={
        "user_id": "alice", "namespace": "acme/shop", "topic": "stack", "key": "database",
        "value": "PostgreSQL 17, because of its row locks.",
    },
)  # fmt: skip
async def set_value(
    services: Services, caller: Caller, *, topic: Topic, key: Key, value: Value, namespace: Project = "default"
) -> ValueSet:
    """Remember a value. It replaces the one under this topic and key, if there is one.

    A value is a memory of the kind `keyed` with the text `topic/key: value`, so that every search finds it. A slash in
    the topic is `%2F` there, and in the path of a request.
    """
    return await services.values.set(caller, NewValue(topic, key, value, namespace))


@operation("GET", PATH, command="values list", tool="memory_list", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def list_values(
    services: Services,
    caller: Caller,
    *,
    namespace: Projects = ("default",),
    topic: OnlyTopic = None,
    page: PageNumber = 1,
    size: PageSize = 50,
) -> ValuePage:
    """List the values of a project, by topic and key."""
    return await services.values.list(caller, namespaces=namespace, topic=topic, page=page, size=size)


@operation("GET", ONE, command="values get", tool="memory_get", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def read_value(
    services: Services, caller: Caller, *, topic: Topic, key: Key, namespace: Projects = ("default",)
) -> StoredValue:
    """Show the value under a topic and a key."""
    return await services.values.get(caller, topic, key, namespace)


@operation(
    "DELETE", ONE, command="values delete", tool="memory_delete", tag=TAG, speaker=Speaker.READER, errors=(403, 404)
)
async def delete_value(
    services: Services, caller: Caller, *, topic: Topic, key: Key, namespace: Project = "default"
) -> ValueDeleted:
    """Soft-delete the value under a topic and a key. `restore` of memories brings it back."""
    return ValueDeleted(await services.values.delete(caller, topic, key, namespace))

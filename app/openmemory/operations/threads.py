"""Use cases of conversations: what was said, verbatim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import OnlyProjects, PageNumber, PageSize
from openmemory.sources.schemas import MessagePage, ThreadPage, ThreadsChanged

if TYPE_CHECKING:
    from openmemory.identity.caller import Caller
    from openmemory.services import Services

TAG = "threads"
PATH = "/api/v1/threads"
ONE = f"{PATH}/{{thread_id:path}}"

ThreadId = Annotated[
    str, Field(description="The id that the client chose for the thread.", examples=["chat-2026-05-01"])
]
OnlyProject = Annotated[str | None, Field(description="Left out: every namespace.")]
"""The namespace of a change; its default is None. The commands take that of the folder."""

_WHICH = {"of a user": {"user_id": "alice"}, "in a namespace": {"user_id": "alice", "namespace": "family"}}


@operation("GET", PATH, command="threads list", tool="list_threads", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def list_threads(
    services: Services,
    caller: Caller,
    *,
    namespace: OnlyProjects = (),
    page: PageNumber = 1,
    size: PageSize = 50,
) -> ThreadPage:
    """List conversations, the last used first."""
    return await services.conversations.threads(caller, namespaces=namespace, page=page, size=size)


@operation(
    "GET", f"{ONE}/messages", command="threads show", tool="read_thread", tag=TAG, speaker=Speaker.READER,
    errors=(403, 404),
)  # fmt: skip
async def list_messages(
    services: Services,
    caller: Caller,
    *,
    thread_id: ThreadId,
    namespace: OnlyProjects = (),
    page: PageNumber = 1,
    size: PageSize = 50,
) -> MessagePage:
    """Show the messages of a conversation, oldest first."""
    return await services.conversations.messages(caller, thread_id, namespaces=namespace, page=page, size=size)


@operation(
    "POST", f"{ONE}/close", command="threads close", tag=TAG, speaker=Speaker.READER, errors=(403, 404),
    body="CloseBody",
    examples={
        "of a user": {"user_id": "alice"},
        "with a summary": {
            "user_id": "alice",
            "title": "Choosing a bicycle",
            "summary": "Alice wants a light bicycle for her way to work.",
        },
    },
)  # fmt: skip
async def close_thread(
    services: Services,
    caller: Caller,
    *,
    thread_id: ThreadId,
    namespace: OnlyProject = None,
    title: Annotated[str | None, Field(description="What it was about.", examples=["Choosing a bicycle"])] = None,
    summary: Annotated[
        str | None,
        Field(description="What came of it.", examples=["Alice wants a light bicycle for her way to work."]),
    ] = None,
) -> ThreadsChanged:
    """Mark the conversations of a thread as closed. The next message opens its conversation again."""
    return await services.conversations.close(
        caller, thread_id, namespaces=_named(namespace), title=title, summary=summary
    )


@operation(
    "POST", f"{ONE}/restore", command="threads restore", tag=TAG, speaker=Speaker.READER, errors=(403, 404),
    examples=_WHICH,
)  # fmt: skip
async def restore_thread(
    services: Services, caller: Caller, *, thread_id: ThreadId, namespace: OnlyProject = None
) -> ThreadsChanged:
    """Make the deleted messages of a thread active again. Only the user may."""
    return await services.conversations.restore(caller, thread_id, namespaces=_named(namespace))


@operation(
    "POST", f"{ONE}/erase", command="threads erase", tag=TAG, speaker=Speaker.READER, errors=(403, 404),
    examples=_WHICH,
)  # fmt: skip
async def erase_thread(
    services: Services, caller: Caller, *, thread_id: ThreadId, namespace: OnlyProject = None
) -> ThreadsChanged:
    """Remove the conversations of a thread for good, with their messages and vectors. Only the user may."""
    return await services.conversations.erase(caller, thread_id, namespaces=_named(namespace))


@operation("DELETE", ONE, command="threads delete", tag=TAG, speaker=Speaker.READER, errors=(403, 404))
async def delete_thread(
    services: Services, caller: Caller, *, thread_id: ThreadId, namespace: OnlyProjects = ()
) -> ThreadsChanged:
    """Delete the conversations of a thread. They are no longer found, and `restore` brings them back."""
    return await services.conversations.delete(caller, thread_id, namespaces=namespace)


def _named(namespace: str | None) -> tuple[str, ...]:
    return () if namespace is None else (namespace,)

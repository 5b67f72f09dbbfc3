"""Use cases of conversations: what was said, verbatim."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from openmemory.memories.schemas import OnError
from openmemory.operations.batches import BatchReport, ItemProblem, Refused, items_of, parsed, reported
from openmemory.operations.description import Speaker, operation
from openmemory.operations.parameters import OnlyProjects, PageNumber, PageSize, Project
from openmemory.serialization.timestamps import TimeInput
from openmemory.sources.schemas import MessageAdded, MessagePage, NewMessage, NewMessages, ThreadPage, ThreadsChanged

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
"""The namespace in which something is changed. Its default is None. Commands fill in that of the folder."""


class MessageEntry(BaseModel):
    """One message, verbatim."""

    model_config = ConfigDict(extra="forbid")

    content: str = Field(description="The text.", examples=["I finally picked it up because you said it was good."])
    role: str = Field(default="user", description="Who says it: user, assistant, or a name.", examples=["Caroline"])
    id: str | None = Field(default=None, description="Your own id of it. A message that is sent again is stored once.")
    created_at: TimeInput | None = Field(default=None, description="When it was said; left out: now.")
    metadata: dict[str, Any] = Field(default_factory=dict)

    def message(self) -> NewMessage:
        """Returns the input of the service."""
        return NewMessage(self.content, self.role, self.id, self.created_at, self.metadata)


class MessagesAnswer(BatchReport):
    """The result for each message."""

    thread_id: str
    results: list[MessageAdded | ItemProblem] = Field(description="The results, in the order of the messages.")
    refused: Refused


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
    "POST", f"{ONE}/messages", command="threads log", tool="log_messages", tag=TAG, speaker=Speaker.APP,
    errors=(403, 404, 413), body="MessagesBody",
    examples={
        "two": {
            "user_id": "alice",
            "messages": [
                {"role": "user", "content": "Which bicycle was it that you liked?", "id": "m-1"},
                {"role": "assistant", "content": "The light blue one for 900 euros.", "id": "m-2"},
            ],
        },
        "people": {
            "user_id": "alice",
            "app": "chat",
            "namespace": "family",
            "title": "Weekend plans",
            "messages": [
                {
                    "role": "Caroline",
                    "content": "Shall we go to the lake on Saturday?",
                    "created_at": "2026-05-01T18:30:00Z",
                }
            ],
        },
    },
)  # fmt: skip
async def add_messages(
    services: Services,
    caller: Caller,
    *,
    thread_id: ThreadId,
    namespace: Project = "default",
    title: Annotated[str | None, Field(description="What the conversation is about; left out: as it is.")] = None,
    infer: Annotated[
        bool,
        Field(description="Let the language model extract facts from the conversation, if one is configured."),
    ] = True,
    ttl_days: Annotated[int | None, Field(description="Days until these messages expire; left out: never.")] = None,
    messages: Annotated[list[Any], items_of(MessageEntry)],
    on_error: Annotated[
        OnError, Field(description="If a message is refused, skip stores the others; fail stores all of them or none.")
    ] = "skip",
) -> MessagesAnswer:
    """Store messages of a conversation verbatim. They are found at once, with `corpus=passages` of a search.

    Each app has its own conversation of a thread id. Secrets are redacted, and the result names their kinds. Give
    messages an `id` of your own, and a request can be repeated: what is stored already is `NONE`.
    """
    new = await parsed(messages, MessageEntry, MessageEntry.message)
    new_messages = NewMessages(thread_id, new, namespace, title, on_error, ttl_days, infer)
    return MessagesAnswer(thread_id=thread_id, **reported(await services.conversations.add(caller, new_messages)))


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
    around: Annotated[
        int | None,
        Field(
            ge=1,
            le=2**31 - 1,
            description="The number of a message. That message and those nearest to it are shown, in place of a page.",
        ),
    ] = None,
    page: PageNumber = 1,
    size: PageSize = 50,
) -> MessagePage:
    """Show the messages of a conversation, oldest first."""
    return await services.conversations.messages(
        caller, thread_id, namespaces=namespace, around=around, page=page, size=size
    )


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

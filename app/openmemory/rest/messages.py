"""REST endpoints for conversations: what was said, verbatim."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

from fastapi import Body, Path
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openmemory.errors import Invalid
from openmemory.memories.schemas import OnError
from openmemory.rest.caller import BodyUser, TheAsking, TheServices
from openmemory.rest.errors import MEANINGS, BatchProblem, ItemProblem, as_invalid, documented
from openmemory.rest.routing import Router
from openmemory.serialization.timestamps import TimeInput
from openmemory.sources.schemas import MessageAdded, NewMessage, NewMessages

router = Router("/api/v1/threads", "threads")

ThreadId = Annotated[
    str, Path(description="The id that the client chose for the thread.", examples=["chat-2026-05-01"])
]


class MessageEntry(BaseModel):
    """One message, verbatim."""

    model_config = ConfigDict(extra="forbid")

    content: str = Field(description="The text.", examples=["I finally picked it up because you said it was good."])
    role: str = Field(default="user", description="Who says it: user, assistant, or a name.", examples=["Caroline"])
    id: str | None = Field(default=None, description="Your own id of it. A message that is sent again is stored once.")
    created_at: TimeInput | None = Field(default=None, description="When it was said; left out: now.")
    metadata: dict[str, Any] = Field(default_factory=dict)


class MessagesBody(BaseModel):
    """Messages of a thread, oldest first. Each is checked by itself, so an invalid one does not stop the others."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    app: str | None = Field(default=None, description="The app that had the conversation; left out: the credential's.")
    namespace: str = Field(default="default")
    title: str | None = Field(default=None, description="What the conversation is about; left out: as it is.")
    infer: bool = Field(
        default=True, description="Let the language model extract facts from the conversation, if one is configured."
    )
    ttl_days: int | None = Field(default=None, description="Days until these messages expire; left out: never.")
    messages: list[Any] = Field(
        description="At most limits.batch of them.",
        json_schema_extra={"items": MessageEntry.model_json_schema(ref_template="#/components/schemas/{model}")},
    )
    on_error: OnError = Field(
        "skip", description="If a message is refused, skip stores the others; fail stores all of them or none."
    )


class MessagesAnswer(BaseModel):
    """The result for each message."""

    thread_id: str
    results: list[MessageAdded | ItemProblem] = Field(description="The results, in the order of the messages.")
    refused: list[ItemProblem] = Field(description="The items of `results` that were not stored.")


@router.post("/{thread_id:path}/messages", responses=documented(403, 404, 413) | {
    422: {"model": BatchProblem, "description": MEANINGS[422]}
})  # fmt: skip
async def add_messages(
    services: TheServices,
    asking: TheAsking,
    thread_id: ThreadId,
    new: Annotated[
        MessagesBody,
        Body(
            openapi_examples={
                "two": {
                    "value": {
                        "user_id": "alice",
                        "messages": [
                            {"role": "user", "content": "Which bicycle was it that you liked?", "id": "m-1"},
                            {"role": "assistant", "content": "The light blue one for 900 euros.", "id": "m-2"},
                        ],
                    }
                },
                "people": {
                    "value": {
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
                    }
                },
            }
        ),
    ],
) -> MessagesAnswer:
    """Store messages of a conversation verbatim. They are found at once, with `corpus=passages` of a search.

    Each app has its own conversation of a thread id. Secrets are redacted, and the result names their kinds. Give
    messages an `id` of your own, and a request can be repeated: what is stored already is `NONE`.
    """
    caller = await asking.as_app(new.user_id, new.app)
    # In a thread, because a batch may be large.
    messages = await asyncio.to_thread(lambda: [_read(entry) for entry in new.messages])
    wanted = NewMessages(thread_id, messages, new.namespace, new.title, new.on_error, new.ttl_days, new.infer)
    became = await services.conversations.add(caller, wanted)
    results = [ItemProblem.of(index, one) if isinstance(one, Invalid) else one for index, one in enumerate(became)]
    refused = [one for one in results if isinstance(one, ItemProblem)]
    return MessagesAnswer(thread_id=thread_id, results=results, refused=refused)


def _read(entry: Any) -> NewMessage | Invalid:
    try:
        valid = MessageEntry.model_validate(entry)
    except ValidationError as error:
        return as_invalid(error.errors(include_url=False, include_input=False, include_context=False))
    return NewMessage(valid.content, valid.role, valid.id, valid.created_at, valid.metadata)

"""REST endpoint that adds many memories at once."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field

from openmemory.doors.rest.http.caller import BodyUser, TheAsking, TheServices
from openmemory.doors.rest.http.errors import NOT_STORED, documented
from openmemory.doors.rest.http.routing import Router
from openmemory.doors.rest.schemas import NewMemory
from openmemory.errors import Invalid
from openmemory.memories.schemas import Event, OnError
from openmemory.operations.batches import BatchReport, ItemProblem, Refused, items_of, parsed, reported

router = Router("/api/v1/memories/batch", "memories")


class BatchEntry(NewMemory):
    """One text of a batch."""

    model_config = ConfigDict(extra="forbid")


class BatchBody(BaseModel):
    """Texts to remember. Each is checked by itself, so an invalid one does not stop the others."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    memories: Annotated[list[Any], items_of(BatchEntry)]
    on_error: OnError = Field(
        "skip", description="If a text is refused, skip stores the others; fail stores all of them or none."
    )


class BatchAdded(BaseModel):
    """A text that was stored, or that an active memory says already."""

    id: UUID
    event: Event


_REFUSED: dict[str, Any] = {
    "index": 1,
    "field": "text",
    "error": "secret_refused",
    "detail": "text: looks like it holds a GitHub token; secrets are not stored (capture.secrets)",
    "hint": "Leave it out, or say where it is kept instead.",
}
_EXAMPLE: dict[str, Any] = {
    "results": [{"id": "6f1c2d9e-4b7a-4c53-9e0d-2a8f1b3c4d5e", "event": "ADD"}, _REFUSED],
    "refused": [_REFUSED],
}


class BatchAnswer(BatchReport):
    """The result for each text."""

    model_config = ConfigDict(json_schema_extra={"examples": [_EXAMPLE]})

    results: list[BatchAdded | ItemProblem] = Field(description="The results, in the order of the texts.")
    refused: Refused


@router.post("", responses=documented(403, 413) | NOT_STORED)
async def add_memories(
    services: TheServices,
    asking: TheAsking,
    batch: Annotated[
        BatchBody,
        Body(
            openapi_examples={
                "two": {
                    "value": {
                        "user_id": "alice",
                        "memories": [
                            {"text": "Alice drinks her coffee black.", "app": "claude"},
                            {"text": "Alice lives in Oslo.", "created_at": "2026-01-31T12:00:00Z"},
                        ],
                    }
                },
                "all or none": {
                    "value": {
                        "user_id": "alice",
                        "memories": [{"text": "Alice has a dog."}, {"text": "Alice has a cat."}],
                        "on_error": "fail",
                    }
                },
            }
        ),
    ],
) -> BatchAnswer:
    """Stores many texts verbatim, in one transaction. A text with a secret or an invalid field is refused and reported,
    and the others are stored. Nothing is stored if all are refused, or if one is refused and `on_error` is `fail`; the
    answer is then the error of the first one, and `refused` lists all. If the credential does not allow one of the
    texts, the whole batch is refused.

    A batch that is sent again stores nothing twice: its texts are then `NONE`, with the same ids.
    """
    caller = await asking.as_owner(batch.user_id, make=True)
    items = await parsed(batch.memories, BatchEntry, lambda entry: entry.create(app=entry.app))
    became = await services.memories.add_batch(caller, items, on_error=batch.on_error)
    return BatchAnswer(
        **reported(one if isinstance(one, Invalid) else BatchAdded(id=one.id, event=one.event) for one in became)
    )

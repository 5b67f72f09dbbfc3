"""Adding many memories at once over REST."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any
from uuid import UUID

from fastapi import Body
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from openmemory.errors import Invalid
from openmemory.memories import validation
from openmemory.memories.schemas import Event, MemoryCreate
from openmemory.rest.caller import TheAsking, TheServices
from openmemory.rest.errors import Problem, documented, not_valid
from openmemory.rest.routing import Router
from openmemory.rest.schemas import NewMemory
from openmemory.services import Services

router = Router("/api/v1/memories/batch", "memories")


class BatchEntry(NewMemory):
    """One text of a batch."""

    model_config = ConfigDict(extra="forbid")


class BatchBody(BaseModel):
    """Texts to remember. Each is checked by itself, so that one that cannot be used does not hold up the others."""

    model_config = ConfigDict(extra="forbid")

    user_id: str = Field(description="The user; made on first use.")
    memories: list[Any] = Field(
        description="At most limits.batch of them.",
        json_schema_extra={"items": BatchEntry.model_json_schema(ref_template="#/components/schemas/{model}")},
    )


class BatchAdded(BaseModel):
    """A text that is remembered now."""

    id: UUID
    event: Event


class BatchAnswer(BaseModel):
    """What became of each text, in the order in which they came."""

    results: list[BatchAdded | Problem]


@router.post("", responses=documented(403, 413))
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
                }
            }
        ),
    ],
) -> BatchAnswer:
    """Remember many texts verbatim. Those that can be used are stored, all or none; the others are told apart."""
    validation.count(batch.memories, "memories", services.settings.limits.batch, "limits.batch")
    caller = await asking.as_new_owner(batch.user_id)
    # In a thread, because looking through a large batch for what `capture` is about takes its time.
    checked = await asyncio.to_thread(lambda: [_checked(services, entry) for entry in batch.memories])
    news = [new for new in checked if isinstance(new, MemoryCreate)]
    added = iter(await services.memories.add_many(caller, news) if news else ())
    results: list[BatchAdded | Problem] = []
    for new in checked:
        if isinstance(new, Problem):
            results.append(new)
        else:
            done = next(added)
            results.append(BatchAdded(id=done.id, event=done.event))
    return BatchAnswer(results=results)


def _checked(services: Services, entry: Any) -> MemoryCreate | Problem:
    try:
        valid = BatchEntry.model_validate(entry)
        return services.memories.intake.created(valid.create(app=valid.app))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        return Problem(error="invalid", detail=not_valid(found), hint=None)
    except Invalid as error:
        return Problem(error=error.code, detail=error.message, hint=error.hint)

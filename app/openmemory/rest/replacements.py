"""REST endpoints for memories that a newer one may replace."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

from fastapi import Body, Query
from pydantic import BaseModel, ConfigDict, Field

from openmemory.memories.schemas import MemoryRow
from openmemory.rest.caller import BodyUser, GivenId, Owner, TheAsking, TheServices
from openmemory.rest.errors import documented
from openmemory.rest.routing import Router
from openmemory.rest.schemas import Message
from openmemory.tidying.replacements import PossibleReplacement
from openmemory.tidying.seen_versions import SeenVersion

router = Router("/api/v1/replacements", "memories")


class ComparedMemory(MemoryRow):
    """A memory of a pair."""

    app_name: str
    namespace: str
    kind: str
    revision: int


class ReplacementView(BaseModel):
    """Two memories of which the newer may replace the older."""

    newer: ComparedMemory
    older: ComparedMemory
    replaces: bool = Field(description="It seems to replace it; false: it may.")
    because: list[str] = Field(description="What speaks for it, the strongest first.")

    @classmethod
    def of(cls, pair: PossibleReplacement) -> ReplacementView:
        """Converts a pair to its form over REST."""
        newer, older = ComparedMemory.of(pair.newer), ComparedMemory.of(pair.older)
        return cls.model_construct(newer=newer, older=older, replaces=pair.replaces, because=list(pair.because))


class ReplacementList(BaseModel):
    """A page of pairs, those with the newest texts first."""

    items: list[ReplacementView]
    total: int
    page: int
    size: int


class ReplacementDecision(BaseModel):
    """Decides about two memories."""

    model_config = ConfigDict(extra="forbid")

    user_id: BodyUser = None
    newer: GivenId
    older: GivenId
    newer_revision: int | None = Field(
        default=None, description="The revision that was shown. If the memory has another one, the request is refused."
    )
    older_revision: int | None = Field(default=None, description="As `newer_revision`.")
    decision: Literal["replace", "both", "different"] = Field(
        description="`replace`: the older one is archived, superseded by the newer. `both`: both hold, and are shown"
        " side by side. `different`: they are not about the same."
    )


class ReplacementDecided(Message):
    """The result, in words. `action`: the id of the change, if it archived a memory."""

    action: UUID | None = None


_DECISION: dict[str, Any] = {
    "replace": {
        "value": {
            "user_id": "alice",
            "newer": "8f14e45f-ceea-467f-a8c4-2b1c0d7d3a11",
            "older": "45c48cce-2e2d-4fbd-aa1a-3c1e5b7c9d22",
            "decision": "replace",
        }
    }
}


@router.get("", responses=documented(403, 404))
async def list_replacements(
    services: TheServices,
    caller: Owner,
    page: Annotated[int, Query(ge=1, le=1_000_000)] = 1,
    size: Annotated[int, Query(ge=1, le=100)] = 20,
) -> ReplacementList:
    """List the memories that a newer one may replace, in pairs. Nothing is replaced by itself."""
    found = await services.replacements.list(caller, page=page, size=size)
    items = [ReplacementView.of(pair) for pair in found.items]
    return ReplacementList.model_construct(items=items, total=found.total, page=page, size=size)


@router.post("", responses=documented(403, 404, 409))
async def decide_replacement(
    services: TheServices,
    asking: TheAsking,
    decided: Annotated[ReplacementDecision, Body(openapi_examples=_DECISION)],
) -> ReplacementDecided:
    """Decide about two memories. The pair is not listed again."""
    caller = await asking.as_owner(decided.user_id)
    [newer] = await services.short_ids.resolved(caller, [decided.newer], "newer")
    [older] = await services.short_ids.resolved(caller, [decided.older], "older")
    seen = SeenVersion(newer, decided.newer_revision), SeenVersion(older, decided.older_revision)
    if decided.decision == "replace":
        action = await services.duplicates.merge(caller, *seen)
        return ReplacementDecided(message="Superseded the older memory", action=action)
    await services.duplicates.keep(caller, *seen, decision=decided.decision)
    return ReplacementDecided(message="Kept both memories")

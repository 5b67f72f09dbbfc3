"""The tool that synchronizes the vector index."""

from __future__ import annotations

from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel

from openmemory.identity.caller import Caller
from openmemory.mcp.memories import NoArguments
from openmemory.mcp.tool import Answer, Tool
from openmemory.services import Services


class Statistics(BaseModel):
    total_memories: int
    memories_synced: int
    deleted: int
    embedded: int
    unchanged: int
    errors: int
    seconds: float


class SyncResult(BaseModel):
    status: str
    statistics: Statistics


async def _sync(services: Services, caller: Caller, _: NoArguments) -> Answer:
    done = await services.index_sync.run(caller, trigger="mcp")
    return Answer.of(SyncResult.model_validate(done, from_attributes=True))


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "sync_vector_store", "Synchronise the vector store",
        "Compare the user's memories with the vector index and repair what differs. Only when searches miss things.",
        NoArguments, SyncResult,
        ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False),
        _sync, "Error synchronising",
    ),
)  # fmt: skip

"""The tool that synchronizes the vector index."""

from __future__ import annotations

from typing import Any

from mcp_types import ToolAnnotations
from pydantic import BaseModel

from openmemory.doors.mcp.tool import Answer, Arguments, Tool, ToolCall
from openmemory.services import Services


class Statistics(BaseModel):
    total_memories: int
    users_cleared: int = 0
    """Those whose vectors were removed first: none, because only what differs is written."""
    memories_synced: int
    deleted: int
    embedded: int
    unchanged: int
    errors: int
    seconds: float


class SyncResult(BaseModel):
    status: str
    statistics: Statistics


async def _sync(services: Services, call: ToolCall[Arguments]) -> Answer:
    result = SyncResult.model_validate(await services.index_sync.run(call.caller, trigger="mcp"), from_attributes=True)
    data = result.model_dump(mode="json")
    counts = ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in data["statistics"].items())
    return Answer([f"{result.status}: {counts}"], data)


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "sync_vector_store", "Synchronise the index",
        "Compare the memories with the vector index and repair what differs. Only when searches miss things.",
        Arguments,
        ToolAnnotations(read_only_hint=False, destructive_hint=False),
        _sync, "Error synchronising", toolset="admin",
    ),
)  # fmt: skip

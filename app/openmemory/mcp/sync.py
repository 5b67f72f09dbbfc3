"""The tool that synchronizes the vector index."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import orjson
from mcp_types import ToolAnnotations
from pydantic import BaseModel

from openmemory.audit import audit_log
from openmemory.audit.audit_log import AuditAction
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import ConflictError, Unavailable
from openmemory.identity.caller import Caller
from openmemory.index.port import IndexUnavailable
from openmemory.index.sync.reconcile import SyncRunning
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
    caller.may_write()
    async with services.database.statement() as tx:
        await audit_log.record(tx, caller, AuditAction.INDEX_SYNC)
    try:
        done = await services.reconciler.sync(trigger="mcp", user=caller.user_id)
    except SyncRunning as error:
        raise ConflictError(str(error), code="sync_running") from error
    except IndexUnavailable as error:
        raise Unavailable("The vector store does not answer.", code="index_unavailable", retry_after=5) from error
    except EmbedderUnavailable as error:
        raise Unavailable("The embedder does not answer.", code="embedder_unavailable", retry_after=5) from error
    answer = {"status": "success" if not done.errors else "partial", "statistics": asdict(done)}
    return Answer(orjson.dumps(answer).decode(), answer)


TOOLS: tuple[Tool[Any], ...] = (
    Tool(
        "sync_vector_store", "Synchronise the vector store",
        "Compare the user's memories with the vector index and repair what differs. Only when searches miss things.",
        NoArguments, SyncResult,
        ToolAnnotations(read_only_hint=False, destructive_hint=False, idempotent_hint=True, open_world_hint=False),
        _sync, "Error synchronising",
    ),
)  # fmt: skip

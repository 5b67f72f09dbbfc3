"""The rows with which an added text is answered."""

from __future__ import annotations

from typing import Any

from openmemory.audit import audit_log
from openmemory.audit.schemas import AuditAction
from openmemory.database.engine import Tx
from openmemory.identity.caller import Caller
from openmemory.identity.principal import Scope
from openmemory.memories import repository
from openmemory.memories.idempotency import StoredResult
from openmemory.memories.schemas import CheckedMemory, Event, MemoryAdded, MemoryRowAdded
from openmemory.memories.state import State


async def row_of(tx: Tx, caller: Caller, new: CheckedMemory, result: MemoryAdded) -> MemoryRowAdded:
    """Returns the existing memory if the caller may read it, and otherwise the text as it was sent."""
    outcome: dict[str, Any] = {
        "event": result.event, "note": result.note, "previous_memory": result.previous_memory,
        "possible_duplicates": list(result.possible_duplicates), "changed": list(result.changed),
    }  # fmt: skip
    is_new = result.event in (Event.ADD, Event.SUPERSEDE)
    if not is_new and Scope.READ in caller.principal.scopes:
        record = await repository.get(tx, caller, result.id)
        if record is not None:
            return MemoryRowAdded.of(record, **outcome)
    at = result.first_at or new.created_at
    values: dict[str, Any] = {
        "id": result.id, "user_id": caller.user_id, "app_id": caller.app_id, "content": new.text,
        "metadata_": new.metadata, "state": State.ACTIVE, "created_at": at, "updated_at": at, "archived_at": None,
        "deleted_at": None, "vector": None, "labels": list(new.labels), "namespace": new.namespace,
        "thread_id": new.thread_id, "kind": new.kind, "key": new.key, "importance": new.importance,
        "categories": sorted(set(new.categories)), "valid_from": new.valid_from, "valid_until": new.valid_until,
        "expires_at": result.first_expires_at if result.first_at else new.expires_at,
    }  # fmt: skip
    return MemoryRowAdded.model_construct(**values, **outcome)


async def answered_before(tx: Tx, caller: Caller, new: CheckedMemory, before: StoredResult) -> MemoryAdded:
    """Returns the first answer to a request that is sent again, without what the caller may no longer read."""
    assert before.memory_id is not None  # the requests of captures have other fingerprints
    await audit_log.record(tx, caller, AuditAction.MEMORY_ADD, [before.memory_id], detail={"again": True})
    result = MemoryAdded.model_validate({"id": before.memory_id, "memory": new.text, **before.answer})
    if (result.changed or result.previous_memory) and await repository.get(tx, caller, result.id) is None:
        # The caller may have lost the right to read the earlier text.
        return result.model_copy(update={"changed": (), "previous_memory": None})
    return result

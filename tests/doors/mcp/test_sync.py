from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services

Call = Callable[..., Awaitable[dict[str, Any]]]


async def test_the_sync_puts_back_what_the_index_lost(
    services: Services, call: Call, app_caller: Caller, eventually: Callable[..., Awaitable[None]]
) -> None:
    added = await services.memories.add(app_caller, MemoryCreate(text="I take my tea without sugar"))
    await services.outbox_delivery.drain()  # of earlier tests too, which may take longer than a user may ask so often

    async def found_by_meaning() -> bool:
        results = (await call("search_memory", query="hot drinks", explain=True))["structuredContent"]["results"]
        return any(result["parts"]["cosine"] is not None for result in results)

    await eventually(found_by_meaning)

    result: dict[str, Any] = {}

    async def put_back() -> bool:  # another sync may be running, or be quicker
        nonlocal result
        await services.index.delete([added.id])
        result = await call("sync_vector_store")
        return not result.get("isError", False) and result["structuredContent"]["statistics"]["memories_synced"] == 1

    await eventually(put_back)
    answer = json.loads(result["content"][0]["text"])
    assert answer == result["structuredContent"]
    assert answer["status"] == "success"
    assert (answer["statistics"]["total_memories"], answer["statistics"]["users_cleared"]) == (1, 0)
    await eventually(found_by_meaning)

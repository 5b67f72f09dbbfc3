"""Many assistants at once, each with a user of its own, over one service process."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from mcp import Client
from mcp.client.sse import sse_client

pytestmark = [pytest.mark.journey, pytest.mark.timeout(300)]

SESSIONS = 200


@pytest.mark.slow
async def test_two_hundred_sse_sessions_at_once_each_see_their_own_memories_only(address: str, new_user: str) -> None:
    opened = 0
    all_open = asyncio.Event()
    all_wrote = asyncio.Barrier(SESSIONS)

    async def assistant(number: int) -> None:
        nonlocal opened
        url = f"{address}/mcp/claude/sse/{new_user}-{number}"
        async with Client(sse_client(url, timeout=60), mode="legacy", read_timeout_seconds=120) as client:
            opened += 1
            if opened == SESSIONS:
                all_open.set()
            await all_open.wait()
            await client.call_tool("add_memories", {"text": f"The bicycle of assistant {number} is green"})
            await all_wrote.wait()
            [item] = await _json(client, "list_memories", {})
            assert item["memory"] == f"The bicycle of assistant {number} is green"
            assert item["user_id"] == f"{new_user}-{number}"
            found = await _json(client, "search_memory", {"query": "Whose bicycle is green?"})
            assert [result["id"] for result in found["results"]] == [item["id"]]

    async with asyncio.timeout(240), asyncio.TaskGroup() as group:
        for number in range(SESSIONS):
            group.create_task(assistant(number))


async def _json(client: Client, tool: str, arguments: dict[str, Any]) -> Any:
    result = await client.call_tool(tool, arguments)
    [content] = result.content
    assert not result.is_error, content
    return json.loads(content.text)  # type: ignore[union-attr]

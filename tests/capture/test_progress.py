"""How far a capture is, told to real MCP clients that ask for it."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client

from openmemory.services import Services
from tests.capture.conftest import SetPauses, does, operation
from tests.llm.server import Answer, LlmServer, says
from tests.warm import clean_environment

FIG = operation("ADD", text="Alice likes figs.")
BRIDGE = (
    "import asyncio, sys; from openmemory.config.settings import Settings;"
    "from openmemory.doors.mcp.transport.bridge import bridge;"
    "asyncio.run(bridge(sys.argv[1], Settings(), None, client='claude', user=sys.argv[2]))"
)
WAITS, ASKS = "The text is kept and waits for the language model", "Asking the language model (attempt 1)"


@asynccontextmanager
async def _client(door: str, address: str, user: str) -> AsyncIterator[Client]:
    bridged = StdioServerParameters(command=sys.executable, args=["-c", BRIDGE, address, user], env=clean_environment())
    server: Any = {
        "sse": lambda: sse_client(f"{address}/mcp/claude/sse/{user}"),
        "stdio": lambda: stdio_client(bridged),
    }.get(door, lambda: f"{address}/mcp/claude/http/{user}")()
    async with Client(server, mode="2026-07-28" if door == "modern" else "legacy", read_timeout_seconds=60) as client:
        yield client


@pytest.fixture
def address(inferring_api: httpx.AsyncClient) -> str:
    return str(inferring_api.base_url).rstrip("/")


class Heard:
    """What a client was told, in its order."""

    def __init__(self) -> None:
        self.steps: list[tuple[float, str | None]] = []

    async def __call__(self, progress: float, total: float | None, message: str | None) -> None:
        assert total is None
        self.steps.append((progress, message))


@pytest.mark.slow
@pytest.mark.parametrize("door", ["sse", "http", "modern", "stdio"])
async def test_a_client_that_asks_is_told_of_every_step(
    address: str, model: LlmServer, new_user: str, door: str
) -> None:
    model.script = lambda _: says({"operations": [FIG]}, delay=0.2)
    heard = Heard()
    async with _client(door, address, new_user) as client:
        result = await client.call_tool("add_memories", {"text": "I like figs."} | JSON, progress_callback=heard)
        listed = await client.call_tool("list_memories", JSON, progress_callback=heard)
    assert heard.steps == [(1, WAITS), (2, ASKS), (3, "Done")]
    assert result.structured_content["results"][0]["memory"] == "Alice likes figs."
    assert listed.structured_content["total"] == 1


JSON = {"format": "json"}


async def test_a_failed_attempt_is_told_as_one_that_will_be_repeated(
    inferring: Services, address: str, model: LlmServer, new_user: str, pauses: SetPauses
) -> None:
    pauses(first=60)
    model.script = lambda _: Answer("nonsense")
    heard = Heard()
    async with _client("http", address, new_user) as client:
        result = await client.call_tool("add_memories", {"text": "I like figs."}, progress_callback=heard)
    assert heard.steps == [(1, WAITS), (2, ASKS), (3, WAITS)]
    assert "The text is kept" in result.structured_content["note"]


async def test_what_waits_for_no_model_tells_nothing_and_whoever_does_not_ask_hears_nothing(
    address: str, model: LlmServer, new_user: str
) -> None:
    model.script = does(FIG)
    heard = Heard()
    async with _client("http", address, new_user) as client:
        await client.call_tool("add_memories", {"text": "Verbatim.", "infer": False}, progress_callback=heard)
    assert heard.steps == []
    call = {"name": "add_memories", "arguments": {"text": 'I like "progressToken".'}}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    headers = {"Accept": "application/json, text/event-stream"}
    async with httpx.AsyncClient(base_url=address, timeout=60) as http:
        answer = await http.post(f"/mcp/claude/http/{new_user}", json=body, headers=headers)
        assert answer.headers["content-type"].startswith("application/json")
        assert answer.json()["result"]["structuredContent"]["results"][0]["memory"] == "Alice likes figs."
        # A token without a stream to tell it on.
        body["params"] = call | {"_meta": {"progressToken": 1}}
        answer = await http.post(f"/mcp/claude/http/{new_user}", json=body, headers={"Accept": "application/json"})
        assert answer.headers["content-type"].startswith("application/json")


@pytest.mark.slow
async def test_whoever_sends_the_same_meanwhile_is_told_of_the_attempt_that_began_before(
    address: str, model: LlmServer, new_user: str, eventually: Any
) -> None:
    """As of one that another process works on, its row tells how far it is."""

    async def asked() -> bool:
        return len(model.asked) == 1

    model.script = lambda _: says({"operations": [FIG]}, delay=1.5)
    first, second = Heard(), Heard()
    async with _client("http", address, new_user) as one, _client("sse", address, new_user) as other:
        begun = asyncio.create_task(one.call_tool("add_memories", {"text": "I like figs."}, progress_callback=first))
        await eventually(asked)
        await other.call_tool("add_memories", {"text": "I like figs."}, progress_callback=second)
        await begun
    assert first.steps == second.steps == [(1, WAITS), (2, ASKS), (3, "Done")]
    assert len(model.asked) == 1

"""`mcp.write_mode`: what assistants may change, decided in one place for every tool."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import httpx
import pytest

from openmemory.doors.mcp.server import TOOLS
from openmemory.services import Services
from tests.doors.mcp.conftest import ACCEPT, serving


async def _call(services: Services, mode: str, user: str, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """The listed tools under this mode, and then the results of the calls."""
    mcp = services.settings.mcp.model_copy(update={"write_mode": mode})
    settings = services.settings.model_copy(update={"mcp": mcp})
    async with (
        serving(replace(services, settings=settings)) as address,
        httpx.AsyncClient(base_url=address, headers=ACCEPT, timeout=20) as http,
    ):

        async def send(method: str, params: dict[str, Any]) -> Any:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            return (await http.post(f"/mcp/claude/http/{user}", json=message)).json()["result"]

        listed = (await send("tools/list", {}))["tools"]
        results = [await send("tools/call", {"name": name, "arguments": given}) for name, given in calls]
        return [listed, *(result["content"][0]["text"] if result.get("isError") else result for result in results)]


ADD = ("add_memories", {"text": "I take my tea without sugar.", "infer": False})
SEARCH = ("search_memory", {"query": "tea"})


async def test_auto_asks_for_nothing(services: Services, new_user: str) -> None:
    confirmed = ("add_memories", {"text": "And without milk.", "infer": False, "confirmed": True})
    listed, added, again = await _call(services, "auto", new_user, ADD, confirmed)
    assert not any("confirmed" in tool["inputSchema"]["properties"] for tool in listed)
    assert added["structuredContent"]["results"][0]["event"] == "ADD"
    assert "note" not in again["structuredContent"]  # Mempack's clients always send it


async def test_ask_wants_the_consent_of_the_user(services: Services, new_user: str) -> None:
    confirmed = ("add_memories", ADD[1] | {"confirmed": True})
    denied = ("add_memories", ADD[1] | {"confirmed": False})
    listed, refused, no, found, added = await _call(services, "ask", new_user, ADD, denied, SEARCH, confirmed)
    for tool in listed:
        writes = TOOLS[tool["name"]].writes
        assert ("confirmed" in tool["inputSchema"]["properties"]) == writes, tool["name"]
    assert refused == no
    assert refused.endswith("call add_memories again with confirmed=true (mcp.write_mode is ask).")
    assert found["structuredContent"]["results"] == []
    assert added["structuredContent"]["results"][0]["event"] == "ADD"


@pytest.mark.parametrize("name", sorted(name for name, tool in TOOLS.items() if tool.writes))
async def test_off_refuses_every_tool_that_writes(services: Services, new_user: str, name: str) -> None:
    _, refused = await _call(services, "off", new_user, (name, {"confirmed": True}))
    assert refused == f"Error: {name} is refused: assistants may not change memories here (mcp.write_mode is off)."


def test_what_changes_something_is_known_to_write() -> None:
    reads = {name for name, tool in TOOLS.items() if not tool.writes}
    assert reads == {
        "search_memory", "list_memories", "search_messages", "read_thread", "list_threads", "search_documents",
        "read_document", "list_documents", "search_files", "file_search", "session_get", "session_list",
        "session_search", "mem_get_initial_context", "mem_get_context", "mem_explain", "mem_usage", "mem_show",
        "project_list", "project_status", "memory_get", "memory_list", "memory_search", "list_conflicts", "tool_usage",
        "get_memory", "pimemento.search_memory", "memory_status", "search_slack_channels", "find_slack_user",
    }  # fmt: skip

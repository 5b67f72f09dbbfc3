"""A real MCP client against the real service process, over every transport and both generations of the protocol."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import httpx
import jsonschema
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp_types import ElicitResult

from tests.journeys.service import Service
from tests.warm import HOME, clean_environment

pytestmark = pytest.mark.journey

TOOLS = {
    "add_memories", "search_memory", "list_memories", "update_memory", "delete_memories", "delete_all_memories",
    "restore_memories",
}  # fmt: skip


@asynccontextmanager
async def _over(transport: str, mode: str, address: str, user: str) -> AsyncIterator[Client]:
    server: Any = {
        "http": f"{address}/mcp/claude/http/{user}",
        "http/": f"{address}/mcp/claude/http/{user}/",
        "sse": sse_client(f"{address}/mcp/claude/sse/{user}"),
        "sse/": sse_client(f"{address}/mcp/claude/sse/{user}/"),
    }[transport]
    async with Client(server, mode=mode, read_timeout_seconds=30) as client:
        yield client


@asynccontextmanager
async def _over_stdio(service: Service, user: str, mode: str = "legacy", **more: Any) -> AsyncIterator[Client]:
    bridge = StdioServerParameters(
        command=sys.executable,
        args=["-m", "openmemory", "mcp", "--client", "claude", "--user", user, "--data-dir", service.folder],
        env=clean_environment(),
        cwd=HOME,
    )
    async with Client(stdio_client(bridge), mode=mode, read_timeout_seconds=30, **more) as client:
        yield client


def _text(result: Any) -> str:
    content = result.content[0]
    assert not result.is_error, content.text
    return str(content.text)


async def _use_every_tool(client: Client, user: str) -> None:
    """What an assistant does with its memory, each call held against the tool's input schema."""
    tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    assert set(tools) == TOOLS

    async def call(name: str, **arguments: Any) -> str:
        jsonschema.validate(arguments, tools[name].input_schema)
        return _text(await client.call_tool(name, arguments | {"format": "json"}))

    added = json.loads(await call("add_memories", text=f"The bicycle of {user} is green"))
    memory_id = added["results"][0]["id"]
    again = json.loads(await call("add_memories", text=f"The bicycle of {user} is green"))
    assert (again["results"][0]["id"], again["results"][0]["event"]) == (memory_id, "NONE")
    found = json.loads(await call("search_memory", query="Which bicycle?"))
    assert [result["id"] for result in found["results"]] == [memory_id]
    await call("update_memory", memory_id=memory_id, text=f"The bicycle of {user} is red")
    [item] = json.loads(await call("list_memories"))
    assert (item["memory"], item["user_id"]) == (f"The bicycle of {user} is red", user)
    assert await call("delete_memories", memory_ids=[memory_id]) == "Successfully deleted 1 memories"
    assert json.loads(await call("list_memories")) == []
    assert await call("restore_memories", memory_ids=[memory_id]) == "Successfully restored 1 memories"
    assert len(json.loads(await call("search_memory", query="bicycle"))["results"]) == 1
    assert await call("delete_all_memories", confirm=True) == "Successfully deleted all memories"
    assert json.loads(await call("search_memory", query="bicycle"))["results"] == []
    failed = await client.call_tool("search_memory", {"query": " "})
    assert failed.is_error


@pytest.mark.slow
@pytest.mark.parametrize(
    ("transport", "mode", "version"),
    [
        ("http", "auto", "2026-07-28"),
        ("http/", "2026-07-28", "2026-07-28"),
        ("http", "legacy", "2025-11-25"),
        ("sse", "legacy", "2025-11-25"),
        ("sse/", "legacy", "2025-11-25"),
    ],
)
async def test_an_assistant_uses_every_tool(
    address: str, new_user: str, transport: str, mode: str, version: str
) -> None:
    async with _over(transport, mode, address, new_user) as client:
        assert client.protocol_version == version
        if mode != version:  # else the client asks for nothing before its first call
            assert client.server_info is not None
            assert client.server_info.name == "mem0-mcp-server"
            assert "search_memory" in (client.instructions or "")
        await _use_every_tool(client, new_user)


@pytest.mark.slow
@pytest.mark.parametrize(("mode", "version"), [("legacy", "2025-11-25"), ("auto", "2026-07-28")])
async def test_an_assistant_uses_every_tool_over_stdio(
    served: Service, address: str, new_user: str, mode: str, version: str
) -> None:
    async with _over_stdio(served, new_user, mode) as client:
        assert client.protocol_version == version
        await _use_every_tool(client, new_user)


async def test_over_stdio_the_user_is_asked_before_everything_is_deleted(served: Service, new_user: str) -> None:
    asked = []

    async def agree(_: Any, params: Any) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="accept", content={})

    async with _over_stdio(served, new_user, "auto", elicitation_callback=agree) as client:
        _text(await client.call_tool("add_memories", {"text": "Said over stdio", "infer": False}))
        done = _text(await client.call_tool("delete_all_memories", {"format": "compact"}))
    assert asked == ["Delete all 1 memory that this app can see?"]
    assert done.startswith("Successfully deleted all memories")


@pytest.mark.slow
async def test_all_transports_share_one_memory(served: Service, address: str, new_user: str) -> None:
    async def add(client: AbstractAsyncContextManager[Client], text: str) -> None:
        async with client as opened:
            _text(await opened.call_tool("add_memories", {"text": text}))

    await add(_over("http", "auto", address, new_user), "Said over streamable HTTP")
    await add(_over("sse", "legacy", address, new_user), "Said over SSE")
    await add(_over_stdio(served, new_user), "Said over stdio")
    async with httpx.AsyncClient(base_url=address) as http:
        answer = await http.get("/api/v1/memories", params={"user_id": new_user})
    said = {item["content"] for item in answer.json()["items"]}
    assert said == {"Said over streamable HTTP", "Said over SSE", "Said over stdio"}


@pytest.mark.slow
async def test_the_schemas_are_json_schemas(address: str, new_user: str) -> None:
    async with _over("http", "auto", address, new_user) as client:
        for tool in (await client.list_tools()).tools:
            jsonschema.Draft202012Validator.check_schema(tool.input_schema)
            # Some clients show a model the structured content that a schema announces in place of the text.
            assert tool.output_schema is None
            assert tool.description
            assert tool.annotations is not None
            assert tool.annotations.read_only_hint is (tool.name in {"search_memory", "list_memories"})

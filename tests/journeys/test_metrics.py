"""Metrics of the real process, over real connections of REST, streamable HTTP and SSE."""

from __future__ import annotations

from contextlib import suppress

import httpx
import pytest
from mcp.client import Client
from mcp.client.sse import sse_client
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.journey


def counts(address: str) -> dict[tuple[str, frozenset[str]], float]:
    """Every counter by name and the values of its labels."""
    text = httpx.get(f"{address}/metrics").text
    return {
        (sample.name, frozenset(sample.labels.values())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name.endswith(("_total", "_count"))
    }


@pytest.mark.slow
async def test_calls_of_tools_count_under_their_names_whatever_the_transport(address: str) -> None:
    before = counts(address)
    for transport in (f"{address}/mcp/metrics/http/alice", sse_client(f"{address}/mcp/metrics/sse/alice")):
        async with Client(transport) as client:
            await client.call_tool("search_memory", {"query": "anything"})
            await client.call_tool("search_memory", {"query": " "})
            await client.call_tool("delete_memories", {"memory_ids": ["nonsense"]})
            with suppress(Exception):
                await client.call_tool(f"invented_{address}", {})
    after = counts(address)

    def grown(name: str, *labels: str) -> float:
        key = (name, frozenset(labels))
        return after.get(key, 0.0) - before.get(key, 0.0)

    assert grown("openmemory_mcp_tool_calls_total", "search_memory", "ok") == 2
    assert grown("openmemory_mcp_tool_calls_total", "search_memory", "refused") == 2
    assert grown("openmemory_mcp_tool_calls_total", "delete_memories", "refused") == 2
    assert grown("openmemory_mcp_tool_duration_seconds_count", "search_memory") == 4
    assert grown("openmemory_http_requests_total", "/mcp/{client}/sse/{user}", "GET", "200") == 1
    assert grown("openmemory_http_requests_total", "/mcp/{client}/http/{user}", "POST", "200") >= 3
    assert grown("openmemory_http_requests_total", "/mcp/messages", "POST", "202") >= 3
    assert not [key for key in after if "alice" in str(key) or "invented" in str(key)]


def test_requests_over_tcp_count_one_by_one(address: str) -> None:
    key = ("openmemory_http_requests_total", frozenset({"/health/live", "GET", "200"}))
    before = counts(address).get(key, 0)
    for _ in range(7):
        httpx.get(f"{address}/health/live")
    assert counts(address)[key] - before == 7

"""Numbers in metadata through the tools: as long as one likes, and none that JSON cannot say."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest

from tests.doors.mcp.conftest import Call

LONG = {"id": 2**64, "low": -(2**63) - 1, "deep": [{"n": 123456789012345678901234567890}], "f": [1e30, 1e308, 0.1, 1.0]}


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def metadata_of(item: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in item["metadata"].items() if name in LONG}


async def test_whole_numbers_of_any_length_come_back_as_they_were_sent(
    call: Call, remember: Callable[..., Awaitable[str]]
) -> None:
    memory_id = await remember("Alice drinks tea", metadata=LONG)
    for tool, arguments, key in (("list_memories", {}, "result"), ("search_memory", {"query": "tea"}, "results")):
        answer = await call(tool, **arguments)
        assert same(metadata_of(answer["structuredContent"][key][0]), LONG), tool
        if tool == "list_memories":
            assert same(metadata_of(json.loads(answer["content"][0]["text"])[0]), LONG)
    changed = await call("update_memory", memory_id=memory_id, text="Alice drinks coffee", metadata={"id": 3**200})
    assert not changed.get("isError"), changed
    [item] = (await call("list_memories"))["structuredContent"]["result"]
    assert same(metadata_of(item), {"id": 3**200})


@pytest.mark.parametrize(
    ("number", "said"),
    [
        ("1e999", "metadata.a: must be a finite number"),
        (f"[{2**70}, -1e999]", "metadata.a: must be a finite number"),
        ("NaN", "Parse error"),
        ("9" * 5000, "Parse error: number out of range"),
    ],
)
async def test_a_number_that_cannot_be_kept_is_refused(
    http: httpx.AsyncClient, new_user: str, number: str, said: str
) -> None:
    arguments = f'{{"name": "add_memories", "arguments": {{"text": "t", "metadata": {{"a": {number}}}}}}}'
    content = f'{{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {arguments}}}'
    headers = {"Content-Type": "application/json"}
    answer = await http.post(f"/mcp/claude/http/{new_user}", content=content, headers=headers)
    body = answer.json()
    told = body["result"]["content"][0]["text"] if "result" in body else body["error"]["message"]
    assert said in told
    assert "error" in body or body["result"]["isError"]

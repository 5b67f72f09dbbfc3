"""Batches of messages over streamable HTTP: an array, as the revision 2025-03-26 knows it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from openmemory.doors.mcp.transport.streamable import MAX_MESSAGES
from tests.doors.mcp.streams import stream_of, tool

PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
NOTE = {"jsonrpc": "2.0", "method": "notifications/initialized"}
RESULT = {"jsonrpc": "2.0", "id": 9, "result": {}}

VERSIONS = pytest.mark.parametrize("version", [{}, {"MCP-Protocol-Version": "2025-03-26"}])


@VERSIONS
async def test_the_requests_of_a_batch_are_answered_in_one_array(
    http: httpx.AsyncClient, new_user: str, version: dict[str, str]
) -> None:
    adds = [
        {"jsonrpc": "2.0", "method": "tools/call"} | tool("add_memories", text=text, infer=False) | {"id": id_}
        for id_, text in (("a", "I row."), (2, "I swim."))
    ]
    path = f"/mcp/claude/http/{new_user}"
    answer = await http.post(path, json=[NOTE, *adds, PING | {"method": "nonsense"}], headers=version)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    first, second, unknown = answer.json()
    assert [first["id"], second["id"], unknown["id"]] == ["a", 2, 1]
    assert "I row." in str(first["result"])
    assert "I swim." in str(second["result"])
    assert unknown["error"]["code"] == -32601
    listed = await http.post(path, json={"jsonrpc": "2.0", "method": "tools/call"} | tool("list_memories"))
    texts = {item["memory"] for item in listed.json()["result"]["structuredContent"]["result"]}
    assert texts == {"I row.", "I swim."}


async def test_a_secret_in_one_request_of_a_batch_does_not_hold_up_the_others(
    http: httpx.AsyncClient, new_user: str
) -> None:
    token = "gh" + "p_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
    adds = [
        {"jsonrpc": "2.0", "method": "tools/call"} | tool("add_memories", text=text, infer=False) | {"id": id_}
        for id_, text in enumerate(["I row.", f"CI has {token}.", "I swim."])
    ]
    answer = await http.post(f"/mcp/claude/http/{new_user}", json=adds)
    assert [one["result"].get("isError", False) for one in answer.json()] == [False, True, False]
    assert "text: looks like it holds a GitHub token" in str(answer.json()[1])
    assert token not in answer.text


@VERSIONS
@pytest.mark.parametrize("batch", [[NOTE], [NOTE, NOTE], [RESULT], [RESULT, RESULT]])
async def test_a_batch_that_asks_nothing_has_no_answer(
    http: httpx.AsyncClient, version: dict[str, str], batch: list[Any]
) -> None:
    answer = await http.post("/mcp", json=batch, headers=version)
    assert (answer.status_code, answer.content) == (202, b"")


async def test_what_is_wrong_with_one_message_of_a_batch_is_told_for_it_alone(http: httpx.AsyncClient) -> None:
    alone = PING | {"id": "i", "method": "initialize", "params": {"protocolVersion": "2025-03-26"}}
    answer = await http.post("/mcp", json=[1, PING | {"id": 1.5}, PING | {"id": 2, "jsonrpc": "1.0"}, alone, PING])
    assert answer.status_code == 200
    *wrong, right = answer.json()
    assert [(one["id"], one["error"]["code"]) for one in wrong] == [
        (None, -32600), (None, -32600), (2, -32600), ("i", -32600)
    ]  # fmt: skip
    assert "initialize must be sent alone" in wrong[-1]["error"]["message"]
    assert right == {"jsonrpc": "2.0", "id": 1, "result": {}}


async def test_numbers_of_a_batch_keep_every_digit(http: httpx.AsyncClient, new_user: str) -> None:
    huge = 123456789012345678901234567890
    call = {"jsonrpc": "2.0", "method": "tools/call"} | tool("add_memories", text="I count.", metadata={"n": huge})
    path = f"/mcp/claude/http/{new_user}"
    answer = await http.post(path, content=json.dumps([call]), headers={"Content-Type": "application/json"})
    assert answer.json()[0]["result"].get("isError", False) is False
    row = await http.get("/api/v1/memories", params={"user_id": new_user})
    assert str(huge) in row.text


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ([], "the batch is empty"),
        ([PING] * (MAX_MESSAGES + 1), f"the batch has {MAX_MESSAGES + 1} messages; the limit is {MAX_MESSAGES}"),
    ],
)
async def test_a_batch_holds_a_message_and_not_too_many(http: httpx.AsyncClient, batch: list[Any], said: str) -> None:
    answer = await http.post("/mcp", json=batch)
    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (400, None, -32600)
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize("version", ["2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"])
async def test_other_revisions_know_no_batches(http: httpx.AsyncClient, version: str) -> None:
    answer = await http.post("/mcp", json=[PING], headers={"MCP-Protocol-Version": version})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
    assert "2025-03-26" in answer.json()["error"]["message"]


async def test_a_session_over_sse_takes_one_message_at_a_time(http: httpx.AsyncClient) -> None:
    async with stream_of(http, "/mcp/sse") as stream:
        await stream.shake_hands()
        answer = await http.post(stream.messages, json=[PING])
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)


async def test_a_batch_that_is_not_acceptable_is_refused_once(http: httpx.AsyncClient) -> None:
    answer = await http.post("/mcp", json=[PING, PING], headers={"Accept": "text/html"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (406, -32600)

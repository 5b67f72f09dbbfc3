"""The addresses of MCP, what they answer, and clients of every version of the protocol at them."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.contract.openmemory.versions import speaking
from tests.doors.mcp.streams import CLIENT, stream_of, tool

JSON = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
PING = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
OPENING = {
    "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": "2025-03-26"} | CLIENT,
}  # fmt: skip
FIVE = {"add_memories", "search_memory", "list_memories", "delete_memories", "delete_all_memories"}
CLIENTS = ["claude", "cursor", "cline", "roocline", "windsurf", "witsy", "enconvo", "augment", "openmemory"]


def said(result: dict[str, Any]) -> Any:
    return json.loads(result["content"][0]["text"])


async def call(api: httpx.AsyncClient, path: str, name: str, **arguments: Any) -> dict[str, Any]:
    message = {"jsonrpc": "2.0"} | tool(name, **arguments)
    answer = await api.post(path, json=message, headers=JSON)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("client", CLIENTS)
async def test_the_first_event_of_a_stream_says_where_to_post(
    api: httpx.AsyncClient, new_user: str, client: str, slash: str
) -> None:
    async with api.stream("GET", f"/mcp/{client}/sse/{new_user}{slash}") as stream:
        assert stream.status_code == 200
        assert stream.headers["content-type"].startswith("text/event-stream")
        lines = stream.aiter_lines()
        first = [(await anext(lines)).strip() for _ in range(2)]
    assert first[0] == "event: endpoint"
    assert re.fullmatch(r"data: /mcp/messages/\?session_id=[0-9a-f]{32}", first[1])


@pytest.mark.parametrize(
    "path",
    [
        "/mcp/messages/", "/mcp/messages", "/mcp/claude/sse/{user}/messages/", "/mcp/claude/sse/{user}/messages",
    ],
)  # fmt: skip
async def test_messages_are_accepted_at_every_form_of_their_address_and_answered_on_the_stream(
    api: httpx.AsyncClient, new_user: str, path: str
) -> None:
    async with stream_of(api, f"/mcp/claude/sse/{new_user}") as stream:
        stream.messages = f"{path.format(user=new_user)}?{stream.messages.partition('?')[2]}"
        # As the SDKs' own transport answers it. OpenMemory said 200 whatever became of a message; all clients of
        # theirs take any 2xx, and some, for an answer with a body, this very word.
        accepted = await stream.post({"id": 0, "method": "initialize", "params": OPENING["params"]})
        assert (accepted.status_code, accepted.text) == (202, "Accepted")
        opened = json.loads((await stream.event())[1])["result"]
        assert opened["serverInfo"]["name"] == "mem0-mcp-server"
        assert (await stream.post({"method": "notifications/initialized"})).is_success
        added = await stream.answer(tool("add_memories", text="I like jazz"))
        assert said(added["result"])["results"][0]["event"] == "ADD"


@pytest.mark.parametrize("path", ["/mcp/messages/", "/mcp/messages", "/mcp/claude/sse/bob/messages/"])
async def test_a_message_for_an_unknown_session_is_not_called_accepted(api: httpx.AsyncClient, path: str) -> None:
    for session in (uuid4().hex, str(uuid4()), "nonsense"):
        answer = await api.post(path, params={"session_id": session}, json=PING)
        assert answer.status_code == 404, session
        assert answer.json()["error"] == "session_not_found"
    assert (await api.post(path, json=PING)).status_code == 400


async def test_a_session_that_ended_is_unknown(api: httpx.AsyncClient, new_user: str, eventually: Any) -> None:
    async with stream_of(api, f"/mcp/claude/sse/{new_user}") as stream:
        await stream.shake_hands()

    async def gone() -> bool:
        return (await api.post(stream.messages, json=PING)).status_code == 404

    await eventually(gone)


@pytest.mark.parametrize(
    ("content", "status"), [(b"{", 400), (b"", 400), (b"[]", 400), (b'{"jsonrpc": "1.0"}', 400), (b"\xff", 400)]
)
async def test_what_is_no_message_is_refused_by_a_session_too(
    api: httpx.AsyncClient, new_user: str, content: bytes, status: int
) -> None:
    async with stream_of(api, f"/mcp/claude/sse/{new_user}") as stream:
        assert (await api.post(stream.messages, content=content, headers=JSON)).status_code == status


HTTP = ["/mcp/claude/http/{user}", "/mcp/claude/http/{user}/"]


@pytest.mark.parametrize("path", HTTP)
async def test_streamable_http_answers_in_json_and_keeps_no_session(
    api: httpx.AsyncClient, new_user: str, path: str
) -> None:
    path = path.format(user=new_user)
    opened = await api.post(path, json=OPENING, headers=JSON)
    assert (opened.status_code, opened.headers["content-type"]) == (200, "application/json")
    assert "mcp-session-id" not in opened.headers
    result = opened.json()["result"]
    assert result["protocolVersion"] == "2025-03-26"
    assert result["serverInfo"]["name"] == "mem0-mcp-server"
    initialized = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    assert (await api.post(path, json=initialized, headers=JSON)).status_code == 202
    listed = await api.post(path, json={"jsonrpc": "2.0", "id": 1, "method": "tools/list"}, headers=JSON)
    assert {each["name"] for each in listed.json()["result"]["tools"]} >= FIVE


@pytest.mark.parametrize(
    ("method", "headers", "content", "statuses"),
    [
        ("DELETE", {}, None, {405}),
        ("GET", {}, None, {405}),
        ("POST", {"Accept": "text/html"}, json.dumps(PING).encode(), {406}),
        ("POST", {"Accept": ""}, json.dumps(PING).encode(), {406}),
        ("POST", {}, b"{", {400}),
        ("POST", {}, b"not json", {400}),
        ("POST", {"Content-Type": "text/plain"}, json.dumps(PING).encode(), {400, 415}),
    ],
)
@pytest.mark.parametrize("path", HTTP)
async def test_what_streamable_http_refuses(
    api: httpx.AsyncClient, new_user: str, path: str, method: str, headers: Any, content: Any, statuses: set[int]
) -> None:
    answer = await api.request(method, path.format(user=new_user), headers=JSON | headers, content=content)
    assert answer.status_code in statuses, answer.text


@pytest.mark.parametrize("path", HTTP)
async def test_an_unknown_tool_is_an_error(api: httpx.AsyncClient, new_user: str, path: str) -> None:
    message = {"jsonrpc": "2.0"} | tool("forget_the_world")
    answer = await api.post(path.format(user=new_user), json=message, headers=JSON)
    body = answer.json()
    assert "forget_the_world" in json.dumps(body)
    assert "error" in body or body["result"]["isError"] is True


async def test_users_and_apps_are_made_by_the_first_tool_call_and_not_before(
    api: httpx.AsyncClient, new_user: str
) -> None:
    path = f"/mcp/cursor/http/{new_user}"
    await api.post(path, json=OPENING, headers=JSON)
    assert (await api.get("/api/v1/apps/", params={"user_id": new_user})).json()["apps"] == []
    assert said(await call(api, path, "list_memories")) == []
    apps = (await api.get("/api/v1/apps/", params={"user_id": new_user})).json()["apps"]
    assert "cursor" in {app["name"] for app in apps}


@pytest.mark.slow
async def test_concurrent_requests_of_many_users_and_clients_are_never_mixed_up(
    api: httpx.AsyncClient, new_user: str
) -> None:
    pairs = [(f"{new_user}-{user}", client) for user in range(8) for client in CLIENTS[:4]]

    async def write(user: str, client: str, number: int) -> None:
        text = f"{user} by {client}, number {number}"
        assert said(await call(api, f"/mcp/{client}/http/{user}", "add_memories", text=text))["results"]

    await asyncio.gather(*(write(*pair, number) for pair in pairs for number in range(3)))

    async def read(user: str, client: str) -> None:
        found = said(await call(api, f"/mcp/{client}/http/{user}", "list_memories"))
        assert len(found) == 12
        assert {item["user_id"] for item in found} == {user}
        for item in found:
            assert item["memory"].startswith(f"{user} by {item['app_name']},")
            assert item["metadata"]["mcp_client"] == item["app_name"]

    await asyncio.gather(*(read(*pair) for pair in pairs))


async def test_streams_open_at_once_and_requests_between_them_keep_their_users(
    api: httpx.AsyncClient, new_user: str
) -> None:
    one, two = f"{new_user}-1", f"{new_user}-2"
    async with stream_of(api, f"/mcp/a/sse/{one}") as first, stream_of(api, f"/mcp/b/sse/{two}") as second:
        await first.shake_hands()
        await second.shake_hands()
        await first.answer(tool("add_memories", text="Said by the first"))
        await call(api, f"/mcp/c/http/{two}", "add_memories", text="Said in between")
        await second.answer(tool("add_memories", text="Said by the second"))
        mine = said((await first.answer(tool("list_memories")))["result"])
        theirs = said((await second.answer(tool("list_memories")))["result"])
    assert [(item["memory"], item["app_name"]) for item in mine] == [("Said by the first", "a")]
    assert {(item["memory"], item["app_name"]) for item in theirs} == {
        ("Said by the second", "b"), ("Said in between", "c"),
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize(
    ("version", "path"),
    [
        ("2024-11-05", "/mcp/claude/sse/{user}"),
        ("2024-11-05", "/mcp/claude/sse/{user}/"),
        ("2025-03-26", "/mcp/claude/sse/{user}"),
        ("2025-03-26", "/mcp/claude/http/{user}"),
        ("2025-03-26", "/mcp/claude/http/{user}/"),
        ("2025-06-18", "/mcp/claude/http/{user}"),
        ("2025-11-25", "/mcp/claude/sse/{user}"),
        ("2025-11-25", "/mcp/claude/http/{user}"),
        ("2026-07-28", "/mcp/claude/http/{user}"),
        ("2026-07-28", "/mcp/claude/http/{user}/"),
    ],
)
async def test_a_client_of_any_version_uses_the_five_tools(
    address: str, new_user: str, version: str, path: str
) -> None:
    async with speaking(version, address + path.format(user=new_user)) as (client, requests):
        assert client.protocol_version == version
        assert {each.name for each in (await client.list_tools()).tools} >= FIVE

        async def text(name: str, **arguments: Any) -> str:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, result.content
            return str(result.content[0].text)  # type: ignore[union-attr]

        added = json.loads(await text("add_memories", text="The bicycle is green"))["results"][0]
        assert added["event"] == "ADD"
        assert [item["id"] for item in json.loads(await text("list_memories"))] == [added["id"]]
        found = json.loads(await text("search_memory", query="green bicycle"))["results"]
        assert [item["id"] for item in found] == [added["id"]]
        assert await text("delete_memories", memory_ids=[added["id"]]) == "Successfully deleted 1 memories"
        assert await text("delete_all_memories") == "Successfully deleted all memories"
        failed = await client.call_tool("delete_memories", {"memory_ids": [added["id"]]})
        assert failed.is_error
        assert failed.content[0].text == "Error: No accessible memories found with provided IDs"  # type: ignore[union-attr]
    told = {request.headers.get("mcp-protocol-version") for request in requests[2:]}
    assert told <= {version}
    assert "/http/" not in path or told, "the version is told with every request"


@pytest.mark.parametrize("path", HTTP)
async def test_a_request_that_accepts_nothing_is_refused(api: httpx.AsyncClient, new_user: str, path: str) -> None:
    request = api.build_request("POST", path.format(user=new_user), json=PING)
    del request.headers["accept"]
    assert (await api.send(request)).status_code == 406

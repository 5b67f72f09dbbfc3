from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any
from urllib.parse import quote
from uuid import uuid4

import httpx
import pytest

from openmemory.doors.mcp.transport import endpoints
from openmemory.services import Services
from tests.doors.mcp.conftest import serving
from tests.doors.mcp.streams import CLIENT, stream_of, tool

Ask = Callable[..., Awaitable[httpx.Response]]
Eventually = Callable[..., Awaitable[None]]

HANDSHAKE = CLIENT | {"protocolVersion": "2025-11-25"}
MODERN = {
    "_meta": {
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    }
}


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_client_of_2024_connects_over_sse_and_calls_a_tool(
    http: httpx.AsyncClient, new_user: str, slash: str
) -> None:
    async with stream_of(http, f"/mcp/cursor/sse/{new_user}{slash}") as stream:
        assert re.fullmatch(r"/mcp/messages/\?session_id=[0-9a-f]{32}", stream.messages)
        stream.messages = stream.messages.replace("/?", f"{slash}?")
        opened = await stream.shake_hands()
        assert opened["protocolVersion"] == "2024-11-05"
        assert opened["serverInfo"]["name"] == "mem0-mcp-server"
        added = await stream.answer(tool("add_memories", text="I like jazz"))
        assert json.loads(added["result"]["content"][0]["text"])["results"][0]["event"] == "ADD"
        own = f"/mcp/cursor/sse/{new_user}/messages{slash}?{stream.messages.partition('?')[2]}"
        listed = await stream.answer(tool("list_memories"), own)
        [item] = json.loads(listed["result"]["content"][0]["text"])
        assert (item["user_id"], item["app_name"]) == (new_user, "cursor")


@pytest.mark.parametrize(
    ("proxies", "sent", "prefix"),
    [
        (["127.0.0.1"], "/memory", "/memory"),
        (["127.0.0.1"], "/tools/mcp/", "/tools/mcp"),
        (["127.0.0.1"], "//evil.example", ""),
        (["127.0.0.1"], "/a/../b c", ""),
        (["10.0.0.0/8"], "/memory", ""),
    ],
)
async def test_sse_announces_the_prefix_that_a_trusted_proxy_removed(
    services: Services, new_user: str, proxies: list[str], sent: str, prefix: str
) -> None:
    settings = services.settings.model_copy(
        update={"http": services.settings.http.model_copy(update={"trusted_proxies": tuple(proxies)})}
    )
    headers = {"X-Forwarded-Prefix": sent, "Authorization": f"Bearer {services.stores.local_key}"}
    async with (
        serving(replace(services, settings=settings)) as address,
        httpx.AsyncClient(base_url=address, headers=headers, timeout=20) as http,
        stream_of(http, f"/mcp/cursor/sse/{new_user}") as stream,
    ):
        announced, _, rest = stream.messages.partition("/mcp/messages/")
        assert (announced, rest[:12]) == (prefix, "?session_id=")
        stream.messages = stream.messages.removeprefix(prefix)  # as the proxy does
        assert (await stream.shake_hands())["protocolVersion"] == "2024-11-05"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/sse", "/mcp/claude/http/alice"])
async def test_addresses_of_mcp_take_no_head(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.head(path)
    assert (answer.status_code, answer.content) == (405, b"")
    assert answer.headers["allow"]


@pytest.mark.parametrize("path", ["//mcp", "///mcp/", "//mcp/claude/http/{user}"])
async def test_a_base_address_that_ends_with_a_slash_is_no_other_place(
    ask: Ask, url: str, new_user: str, path: str
) -> None:
    answer = await ask("tools/list", path=url + path.format(user=new_user))
    assert answer.json()["result"]["tools"]


@pytest.mark.parametrize("path", ["/mcp/sse", "/mcp/sse/"])
async def test_an_address_without_names_means_the_configured_user_and_the_client_as_app(
    http: httpx.AsyncClient, services: Services, path: str
) -> None:
    async with stream_of(http, path) as stream:
        await stream.shake_hands()
        added = await stream.answer(tool("add_memories", text=f"Written at {path}", format="json"))
        memory_id = json.loads(added["result"]["content"][0]["text"])["results"][0]["id"]
        listed = await stream.answer(tool("list_memories", format="json"))
        items = {item["id"]: item for item in json.loads(listed["result"]["content"][0]["text"])}
        assert items[memory_id]["user_id"] == services.settings.access.default_user
        assert items[memory_id]["app_name"] == CLIENT["clientInfo"]["name"]


async def test_a_session_is_not_found_under_the_address_of_somebody_else(
    http: httpx.AsyncClient, new_user: str
) -> None:
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        session = stream.messages.partition("?")[2]
        for path in (f"/mcp/claude/sse/x{new_user}/messages/", f"/mcp/cursor/sse/{new_user}/messages/"):
            assert (await stream.post(tool("list_memories"), f"{path}?{session}")).status_code == 404


async def test_a_message_to_a_session_that_never_was_or_has_ended_is_not_found(
    http: httpx.AsyncClient, new_user: str, eventually: Eventually
) -> None:
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        assert (await stream.post({"id": 1, "method": "ping"})).status_code == 202
    for path in ("/mcp/messages", "/mcp/messages/"):
        answer = await http.post(f"{path}?session_id={'0' * 32}", json={"jsonrpc": "2.0", "id": 1, "method": "ping"})
        assert answer.status_code == 404
        assert answer.json()["detail"] == "Could not find session"

    async def ended() -> bool:
        return (await stream.post({"id": 2, "method": "ping"})).status_code == 404

    await eventually(ended)


@pytest.mark.parametrize("body", [b"{", b"", b"[]", b'{"jsonrpc": "1.0"}', b"\xff", b'"text"'])
async def test_what_is_not_json_rpc_is_refused_and_the_session_lives_on(
    http: httpx.AsyncClient, new_user: str, body: bytes
) -> None:
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        refused = await http.post(stream.messages, content=body, headers={"Content-Type": "application/json"})
        assert refused.status_code == 400
        assert (await stream.shake_hands())["protocolVersion"] == "2024-11-05"


async def test_messages_without_a_session_or_of_another_type_are_refused(http: httpx.AsyncClient) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    assert (await http.post("/mcp/messages/", json=message)).status_code == 400
    assert (await http.get("/mcp/messages/?session_id=1")).status_code == 405
    async with stream_of(http, "/mcp/sse") as stream:
        text = await http.post(stream.messages, content=b"{}", headers={"Content-Type": "text/plain"})
        assert text.status_code == 400
    refused = await http.post("/mcp/sse", json=message)
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET")


async def test_sessions_at_once_see_only_their_own_user(http: httpx.AsyncClient, new_user: str) -> None:
    async with stream_of(http, f"/mcp/a/sse/{new_user}-1") as one, stream_of(http, f"/mcp/a/sse/{new_user}-2") as two:
        for stream in (one, two):
            await stream.shake_hands()
        await one.answer(tool("add_memories", text="Mine alone"))
        assert len(json.loads((await one.answer(tool("list_memories")))["result"]["content"][0]["text"])) == 1
        assert json.loads((await two.answer(tool("list_memories")))["result"]["content"][0]["text"]) == []


async def test_more_sessions_than_may_be_open_are_told_to_come_back(
    http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "MAX_SESSIONS", 0)
    refused = await http.get("/mcp/sse")
    assert refused.status_code == 503
    assert refused.json()["error"] == "too_many_sessions"


@pytest.mark.parametrize("path", ["/mcp", "/mcp/", "/mcp/claude/http/{user}", "/mcp/claude/http/{user}/"])
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
async def test_streamable_http_speaks_every_version_with_a_handshake(
    ask: Ask, new_user: str, path: str, version: str
) -> None:
    path = path.format(user=new_user)
    opened = await ask("initialize", {"protocolVersion": version} | CLIENT, path=path)
    assert opened.status_code == 200
    assert opened.headers["content-type"] == "application/json"
    assert opened.json()["result"]["protocolVersion"] == version
    assert ("mcp-session-id" in opened.headers) is (path.strip("/") == "mcp")
    headers = {"MCP-Protocol-Version": version}
    listed = await ask("tools/list", path=path, headers=headers)
    assert "search_memory" in {tool["name"] for tool in listed.json()["result"]["tools"]}
    called = await ask("tools/call", {"name": "list_memories", "arguments": {}}, path=path, headers=headers)
    assert called.json()["result"].get("isError", False) is False


async def test_a_version_that_nobody_knows_is_answered_with_the_newest_of_its_kind(ask: Ask) -> None:
    opened = await ask("initialize", {"protocolVersion": "2042-01-01"} | CLIENT)
    assert opened.json()["result"]["protocolVersion"] == "2025-11-25"
    refused = await ask(
        "tools/list", MODERN, headers={"MCP-Protocol-Version": "2042-01-01", "Mcp-Method": "tools/list"}
    )
    assert refused.status_code == 400
    assert "error" in refused.json()


async def test_the_sessionless_protocol_is_served_at_the_same_address(ask: Ask, new_user: str) -> None:
    path = f"/mcp/claude/http/{new_user}"
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}
    discovered = (await ask("server/discover", MODERN, path=path, headers=headers)).json()["result"]
    assert "2026-07-28" in discovered["supportedVersions"]
    headers |= {"Mcp-Method": "tools/call", "Mcp-Name": "add_memories"}
    params = {"name": "add_memories", "arguments": {"text": "I like jazz"}} | MODERN
    called = await ask("tools/call", params, path=path, headers=headers)
    assert called.json()["result"]["structuredContent"]["results"][0]["event"] == "ADD"
    wrong = await ask("tools/call", params, path=path, headers=headers | {"Mcp-Name": "list_memories"})
    assert wrong.status_code == 400


async def test_a_stale_session_id_from_before_a_restart_does_no_harm(ask: Ask) -> None:
    answer = await ask("tools/list", headers={"Mcp-Session-Id": "of-another-server"})
    assert answer.status_code == 200


@pytest.mark.parametrize("name", ["claude-code", "Visual Studio Code", "Zoë's assistant", "a.b"])
async def test_a_client_without_a_name_in_its_address_is_the_app_of_its_own_name(ask: Ask, name: str) -> None:
    opened = await ask("initialize", HANDSHAKE | {"clientInfo": {"name": f" {name} ", "version": "1"}})
    session = {"Mcp-Session-Id": opened.headers["mcp-session-id"]}
    assert await app_that_writes(ask, session) == name
    assert await app_that_writes(ask, session, path="/mcp/cursor/http/zoe") == "cursor"


async def test_a_sessionless_message_names_its_app(ask: Ask) -> None:
    meta = MODERN["_meta"] | {"io.modelcontextprotocol/clientInfo": {"name": "claude-code", "version": "1"}}
    headers = {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add_memories"}
    assert await app_that_writes(ask, headers, _meta=meta) == "claude-code"


@pytest.mark.parametrize(
    "name", ["", " ", "a\x1b[31mb", "two\nlines", "x" * 10_000, f"om_abcd1234_{'k' * 43}", 7, None]
)
async def test_a_name_that_no_app_can_have_means_the_default_app(ask: Ask, services: Services, name: Any) -> None:
    opened = await ask("initialize", HANDSHAKE | {"clientInfo": {"name": name, "version": "1"}})
    assert "mcp-session-id" not in opened.headers
    forged = f"client.{quote(name, safe='')[:5000]}.{'0' * 32}" if isinstance(name, str) else "of-another-server"
    assert await app_that_writes(ask, {"Mcp-Session-Id": forged}) == services.settings.access.default_app


async def app_that_writes(ask: Ask, headers: dict[str, str], path: str = "/mcp", **params: Any) -> str:
    """The app that a memory belongs to which a client with these headers adds."""
    call: dict[str, Any] = {"name": "add_memories", "arguments": {"text": f"Likes jazz {uuid4()}", "format": "json"}}
    added = (await ask("tools/call", call | params, path=path, headers=headers)).json()["result"]["structuredContent"]
    call = {"name": "list_memories", "arguments": {"limit": 5, "format": "json"}}
    headers = headers | ({"Mcp-Name": "list_memories"} if "Mcp-Name" in headers else {})
    listed = (await ask("tools/call", call | params, path=path, headers=headers)).json()["result"]["structuredContent"]
    [app] = [one["app_name"] for one in listed["result"] if one["id"] == added["results"][0]["id"]]
    return str(app)


@pytest.mark.parametrize(
    ("method", "headers", "content", "status"),
    [
        ("GET", {}, None, 405),
        ("DELETE", {}, None, 405),
        ("PUT", {}, b"{}", 405),
        ("POST", {"Accept": "text/html"}, b'{"jsonrpc": "2.0", "id": 1, "method": "ping"}', 406),
        ("POST", {"Accept": "application/json"}, b"{", 400),
        ("POST", {"Content-Type": "text/plain"}, b"{}", 400),
        ("POST", {}, b"{", 400),
        ("POST", {}, b"[]", 400),
        ("POST", {}, b"\xff", 400),
        ("POST", {}, b"{" * 100_000, 400),
        ("POST", {}, b'{"jsonrpc": "2.0", "id": 1}', 400),
        ("POST", {}, b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"n": NaN}}', 400),
        ("POST", {"MCP-Protocol-Version": "2026-07-28"}, b"{", 400),
        ("POST", {"MCP-Protocol-Version": "2026-07-28"}, b"[" * 100_000, 400),
        ("POST", {}, b'"' + b"a" * 8_388_608 + b'"', 413),
    ],
)
@pytest.mark.parametrize("path", ["/mcp", "/mcp/claude/http/bob/"])
async def test_what_is_not_a_request_is_refused_with_its_status(
    http: httpx.AsyncClient, path: str, method: str, headers: dict[str, str], content: bytes | None, status: int
) -> None:
    headers = {"Content-Type": "application/json"} | headers
    answer = await http.request(method, path, headers=headers, content=content)
    assert answer.status_code == status, answer.text


async def test_a_client_that_accepts_only_json_or_anything_is_served(ask: Ask) -> None:
    for accepted in ("application/json", "*/*", "application/*;q=0.5"):
        assert (await ask("ping", headers={"Accept": accepted})).json()["result"] == {}


@pytest.mark.parametrize(
    ("client", "user", "said"),
    [
        ("%20", "bob", "client (in the address): must not be empty or blank"),
        ("claude", "%20", "user (in the address): must not be empty or blank"),
        ("claude", "a%00b", "user (in the address): must not contain control characters"),
        ("claude", "%ff", "user (in the address): must be UTF-8, percent-encoded"),
        ("%C3", "bob", "client (in the address): must be UTF-8, percent-encoded"),
        ("claude", "a" * 257, "user (in the address): has 257 characters; the limit is 256 (limits.name)"),
    ],
)
@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_name_that_cannot_be_used_is_told(
    http: httpx.AsyncClient, client: str, user: str, said: str, slash: str
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    over_http = await http.post(f"/mcp/{client}/http/{user}{slash}", json=message)
    over_sse = await http.get(f"/mcp/{client}/sse/{user}{slash}")
    for answer in (over_http, over_sse):
        assert answer.status_code == 400, answer.text
        assert answer.json()["detail"].startswith(said)


@pytest.mark.parametrize(
    ("client", "user", "said"),
    [("claude", "", "Error: user_id not provided"), ("", "bob", "Error: client_name not provided")],
)
@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_name_that_was_left_empty_is_told_by_every_tool(
    ask: Ask, http: httpx.AsyncClient, client: str, user: str, said: str, slash: str
) -> None:
    call = {"name": "list_memories", "arguments": {}}
    answer = await ask("tools/call", call, path=f"/mcp/{client}/http/{user}{slash}")
    over_http = answer.json()["result"]
    async with stream_of(http, f"/mcp/{client}/sse/{user}{slash}") as stream:
        await stream.shake_hands()
        over_sse = (await stream.answer(tool("list_memories")))["result"]
    for result in (over_http, over_sse):
        assert (result["isError"], result["content"][0]["text"]) == (True, said)


@pytest.mark.parametrize("name", ["josé@example.com", "日本語", "a b", "100%", "a+b", "\ufffd", "sse", "messages"])
async def test_a_name_may_be_any_text(call: Callable[..., Awaitable[dict[str, Any]]], name: str, new_user: str) -> None:
    from urllib.parse import quote

    result = await call("add_memories", _user=f"{quote(name)}-{new_user}", _app=quote(name), text="I like jazz")
    assert result.get("isError", False) is False
    [item] = (await call("list_memories", _user=f"{quote(name)}-{new_user}", _app=quote(name)))["structuredContent"][
        "result"
    ]
    assert (item["user_id"], item["app_name"]) == (f"{name}-{new_user}", name)


async def test_half_of_a_surrogate_pair_is_stored_as_a_replacement(http: httpx.AsyncClient, new_user: str) -> None:
    for headers in ({}, {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add_memories"}):
        meta = json.dumps(MODERN["_meta"])
        body = (
            '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"add_memories",'
            f'"arguments":{{"text":"a\\ud800b"}},"_meta":{meta}}}}}'
        )
        answer = await http.post(
            f"/mcp/claude/http/{new_user}", content=body, headers={"Content-Type": "application/json"} | headers
        )
        assert answer.status_code == 200
        assert answer.json()["result"]["structuredContent"]["results"][0]["memory"] == "a\ufffdb"


async def test_half_of_a_surrogate_pair_comes_through_a_session(http: httpx.AsyncClient, new_user: str) -> None:
    body = CALL % b'{"text": "x \\udc00 \\ud83d\\ude00", "metadata": "{\\"k\\": \\"\\\\ud83d\\"}"}'
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        await stream.shake_hands()
        sent = await http.post(stream.messages, content=body, headers={"Content-Type": "application/json"})
        assert sent.status_code == 202
        [added] = json.loads((await stream.event())[1])["result"]["structuredContent"]["results"]
    assert added["memory"] == "x \ufffd \U0001f600"
    found = (await http.get(f"/api/v1/memories/{added['id']}", params={"user_id": new_user})).json()
    assert found["metadata_"]["k"] == "\ufffd"


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_name_may_hold_a_slash(ask: Ask, http: httpx.AsyncClient, new_user: str, slash: str) -> None:
    path = f"/mcp/vs%2Fcode/http/{new_user}%2Fhome{slash}"
    params = {"name": "add_memories", "arguments": {"text": "I like jazz"}}
    assert (await ask("tools/call", params, path=path)).json()["result"].get("isError", False) is False
    stored = await http.get("/api/v1/memories", params={"user_id": f"{new_user}/home"})
    assert [item["app_name"] for item in stored.json()["items"]] == ["vs/code"]
    async with stream_of(http, f"/mcp/vs%2Fcode/sse/{new_user}%2Fhome{slash}") as stream:
        await stream.shake_hands()
        listed = await stream.answer(tool("list_memories"))
        [item] = json.loads(listed["result"]["content"][0]["text"])
        assert (item["user_id"], item["app_name"]) == (f"{new_user}/home", "vs/code")


@pytest.mark.slow
async def test_a_client_that_sends_without_reading_is_stopped_until_it_reads(
    http: httpx.AsyncClient, services: Services, new_user: str
) -> None:
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        await stream.shake_hands()
        sent = 0
        while (answer := await stream.post({"id": sent, "method": "tools/list"})).status_code == 202:
            sent += 1
            assert sent < 5_000, "nothing stops it"
        assert (answer.status_code, answer.json()["error"]) == (429, "too_many_messages")
        assert "limits.session_messages" in answer.json()["detail"]
        assert int(answer.headers["retry-after"]) > 0
        assert sent >= services.settings.limits.session_messages
        answered = [json.loads((await stream.event())[1])["id"] for _ in range(sent)]
        assert sorted(answered) == list(range(sent))
        assert (await stream.answer({"id": sent, "method": "ping"}))["result"] == {}


async def test_messages_one_after_the_other_are_never_too_many(http: httpx.AsyncClient, new_user: str) -> None:
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        await stream.shake_hands()
        for number in range(200):
            assert (await stream.answer({"id": number, "method": "ping"}))["result"] == {}
            assert (await stream.post({"method": "notifications/initialized"})).status_code == 202
            assert (await stream.post({"id": number, "method": "nonsense"})).status_code == 202
            assert json.loads((await stream.event())[1])["error"]


CALL = b'{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add_memories", "arguments": %b}}'


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b"[" * 100_000 + b"]" * 100_000,
        CALL % (b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        CALL % (b'{"text": "t", "n": ' + b"9" * 100_000 + b"}"),
        CALL % b'{"text": "a\x00b"}',
        b"\xef\xbb\xbf" + CALL % b'{"text": "t"}',
        (CALL % b'{"text": "t"}').decode().encode("utf-16"),
        CALL % b'{"text": "t"}' + b"\x00",
    ],
)
async def test_strange_json_is_refused_at_every_door_and_its_session_lives_on(
    http: httpx.AsyncClient, new_user: str, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    over_http = await http.post(f"/mcp/claude/http/{new_user}", content=body, headers=headers)
    assert (over_http.status_code, over_http.json()["error"]["code"]) == (400, -32700)
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        await stream.shake_hands()
        assert (await http.post(stream.messages, content=body, headers=headers)).status_code == 400
        assert (await stream.answer({"id": 2, "method": "ping"}))["result"] == {}
    modern = headers | {"MCP-Protocol-Version": "2026-07-28", "Mcp-Method": "tools/call", "Mcp-Name": "add_memories"}
    refused = await http.post("/mcp", content=body, headers=modern)
    assert refused.status_code == 400
    assert "error" in refused.json()


@pytest.mark.parametrize("number", [b"1e400", b"-1e400", b"9" * 4_000])
async def test_numbers_that_nothing_can_hold_never_break_the_server(
    http: httpx.AsyncClient, new_user: str, number: bytes
) -> None:
    body = CALL % (b'{"text": "t", "namespace": ' + number + b"}")
    answer = await http.post(f"/mcp/claude/http/{new_user}", content=body, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["result"]["isError"]) == (200, True)
    assert "namespace" in answer.json()["result"]["content"][0]["text"]


@pytest.mark.parametrize("version", ["1999-01-01", "2027-01-01", "latest", ""])
async def test_a_client_of_an_unknown_version_is_told_which_ones_are_served(
    http: httpx.AsyncClient, version: str
) -> None:
    headers = {"MCP-Protocol-Version": version}
    both = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
    for message, id_, served in (
        ({"id": 7, "method": "tools/list"}, 7, both),
        ({"id": "a", "method": "initialize", "params": {"protocolVersion": version}}, "a", both),
        ({"method": "notifications/initialized"}, None, both),
        ({"id": 8, "method": "tools/list", "params": MODERN}, 8, ["2026-07-28"]),  # sent without a handshake
    ):
        answer = await http.post("/mcp", json={"jsonrpc": "2.0"} | message, headers=headers)
        assert (answer.status_code, answer.json()["id"]) == (400, id_)
        error = answer.json()["error"]
        assert error["code"] == -32022
        assert error["data"] == {"requested": version, "supported": served}
        assert error["message"] == f"MCP-Protocol-Version: {version!r} is not served; use one of {', '.join(served)}"


@pytest.mark.parametrize("path", ["/mcp/{key}/http/alice", "/mcp/claude/http/{key}", "/mcp/{key}/sse/alice"])
async def test_a_key_in_the_place_of_a_name_is_refused_and_not_repeated(http: httpx.AsyncClient, path: str) -> None:
    key = "om_abcdefgh_" + "s" * 43
    answer = await http.request("GET" if "sse" in path else "POST", path.format(key=key), json={})
    assert answer.status_code == 400
    assert "looks like a key" in answer.json()["detail"]
    assert key not in answer.text

from __future__ import annotations

import httpx
import pytest

from tests.doors.mcp.streams import stream_of

JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize("id_", ["1.5", "1.0", "1e400", "true", "null", "{}", "[1]"])
async def test_a_request_whose_id_cannot_be_answered_is_no_notification(
    http: httpx.AsyncClient, new_user: str, id_: str
) -> None:
    body = f'{{"jsonrpc": "2.0", "id": {id_}, "method": "tools/list"}}'
    async with stream_of(http, f"/mcp/claude/sse/{new_user}") as stream:
        await stream.shake_hands()
        for path in ("/mcp", f"/mcp/claude/http/{new_user}", stream.messages):
            answer = await http.post(path, content=body, headers=JSON)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, -32600)
            assert "id must be a string or an integer" in answer.json()["error"]["message"]
            assert answer.json()["id"] is None


@pytest.mark.parametrize(
    ("body", "id_", "said"),
    [
        (b"1", None, "a message must be one JSON object"),
        (b'{"id": 1, "method": "ping"}', 1, 'jsonrpc must be "2.0"'),
        (b'{"jsonrpc": "2.0", "id": "a"}', "a", "method is required"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 1}', 1, "method must be a string"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": []}', 1, "params must be an object"),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "result": {}}', 1, "one of method, result and error"),
        (b'{"jsonrpc": "2.0", "id": 1, "result": 1}', 1, "result must be an object"),
        (
            b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1.5, "message": ""}}',
            1,
            "error must have an integer code and a message",
        ),
        (b'{"jsonrpc": "2.0", "id": 1.5, "result": {}}', None, "id must be that of the request"),
    ],
)
async def test_what_is_wrong_with_a_message_is_said_in_words(
    http: httpx.AsyncClient, body: bytes, id_: object, said: str
) -> None:
    answer = await http.post("/mcp", content=body, headers=JSON)
    assert (answer.status_code, answer.json()["id"], answer.json()["error"]["code"]) == (400, id_, -32600)
    assert said in answer.json()["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [
        b'{"jsonrpc": "2.0", "method": "notifications/initialized"}',
        b'{"jsonrpc": "2.0", "id": 1, "result": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "error": {"code": 1, "message": "no"}}',
        b'{"jsonrpc": "2.0", "id": null, "error": {"code": 1, "message": "no"}}',
    ],
)
async def test_what_asks_nothing_is_taken(http: httpx.AsyncClient, body: bytes) -> None:
    assert (await http.post("/mcp", content=body, headers=JSON)).status_code == 202

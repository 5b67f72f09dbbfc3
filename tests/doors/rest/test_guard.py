from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator

import httpx
import pytest
import uvicorn

KEY = "quiet otter, velvet compass"
PAGE = "http://localhost:3000"
PATH = "/api/v1/memories?user_id=default_user"


async def fails(scope, receive, send):
    raise RuntimeError("the secret of the house")


async def chunks(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/x", {"Authorization": f"Bearer {KEY}"}),
        ("/x", {"authorization": f"bearer {KEY}"}),
        ("/x", {"X-API-Key": KEY}),
        ("/x?key=quiet+otter,%20velvet+compass", {}),
        ("/health/live", {}),
        ("/health/ready", {}),
        ("/", {}),
    ],
)
async def test_the_key_opens_and_some_paths_are_open(guarded, path, headers):
    async with guarded(access={"api_key": KEY}) as client:
        assert (await client.get(path, headers=headers)).status_code == 200


@pytest.mark.parametrize("path", ["/mcp/messages/", "/mcp/a/sse/b/messages", "/mcp/a%2Fb/sse/c%2Fd/messages/"])
async def test_a_message_may_come_without_the_key_that_its_session_stands_for(guarded, path):
    async with guarded(access={"api_key": KEY}) as client:
        assert (await client.post(f"{path}?session_id=8d1f")).status_code == 200
        assert (await client.get(f"{path}?session_id=8d1f")).status_code == 401
        assert (await client.post(path)).status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/mcp/a/sse/b%2Fmessages",
        "/mcp/a%2Fsse/http/messages",
        "/mcp/a%0Ab/sse/c%2fmessages",
        "/mcp/sse",
        "/mcp/messages/x",
    ],
)
async def test_no_other_address_looks_like_that_of_a_session(guarded, path):
    async with guarded(access={"api_key": KEY}) as client:
        assert (await client.post(f"{path}?session_id=8d1f")).status_code == 401


@pytest.mark.parametrize(
    "header",
    [
        "Forwarded", "Via", "CDN-Loop", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto",
        "X-Forwarded-Server", "X-Forwarded-Port", "X-Forwarded-Anything", "X-Real-IP", "X-Client-IP", "Client-IP",
        "True-Client-IP", "X-Cluster-Client-IP", "X-Original-URI", "X-Original-Forwarded-For", "X-Original-Host",
        "CF-Connecting-IP", "CF-Ray", "CF-IPCountry", "Cf-Access-Jwt-Assertion", "X-Envoy-External-Address",
        "X-Envoy-Expected-Rq-Timeout-Ms", "X-Amz-Cf-Id", "CloudFront-Viewer-Address", "Fastly-Client-IP", "Fastly-FF",
        "Akamai-Origin-Hop", "Fly-Client-IP", "Fly-Forwarded-Proto", "Tailscale-User-Login", "Tailscale-Funnel-Request",
        "X-Azure-ClientIP", "X-Azure-FDID", "X-ARR-LOG-ID", "X-Appengine-User-IP", "X-Goog-IAP-JWT-Assertion",
        "X-Vercel-Forwarded-For", "X-NF-Client-Connection-IP", "DO-Connecting-IP", "X-Varnish", "Remote-User",
    ],
)  # fmt: skip
async def test_who_comes_through_a_proxy_is_not_taken_for_this_machine(guarded, header):
    async with guarded() as client:
        assert (await client.get("/x")).status_code == 200
        answer = await client.get("/x", headers={header: "192.0.2.1"})
        assert (answer.status_code, answer.json()["error"]) == (401, "unauthenticated")
        assert "http.trusted_proxies" in answer.json()["hint"]
        assert (await client.get("/health/live", headers={header: "192.0.2.1"})).status_code == 200


@pytest.mark.parametrize(
    "header",
    [
        "traceparent", "X-Request-ID", "X-Correlation-ID", "X-B3-TraceId", "X-Amzn-Trace-Id", "X-Cloud-Trace-Context",
        "ngrok-skip-browser-warning", "Max-Forwards", "DNT", "Priority",
    ],
)  # fmt: skip
async def test_what_a_program_on_this_machine_sends_is_not_taken_for_a_proxys(guarded, header):
    async with guarded() as client:
        assert (await client.get("/x", headers={header: "1"})).status_code == 200


@pytest.mark.parametrize(
    ("path", "headers", "detail"),
    [
        ("/x", {}, "An API key is needed."),
        ("/x", {"Authorization": "Bearer wrong"}, "The API key is invalid, revoked or expired."),
        ("/x", {"Authorization": f"Basic {KEY}"}, "An API key is needed."),
        ("/x", {"X-API-Key": KEY[:-1]}, "The API key is invalid, revoked or expired."),
        ("/x", {"X-API-Key": "ключ".encode()}, "The API key is invalid, revoked or expired."),
        ("/x?key=wrong", {}, "The API key is invalid, revoked or expired."),
        ("/x?keys=" + KEY, {}, "An API key is needed."),
        ("/mcp/messages/", {}, "An API key is needed."),
        ("/docs", {}, "An API key is needed."),
        ("/health", {}, "An API key is needed."),
    ],
)
async def test_without_the_key_every_door_is_shut(guarded, path, headers, detail):
    async with guarded(access={"api_key": KEY}) as client:
        answer = await client.get(path, headers=headers)
    code = "unauthenticated" if detail == "An API key is needed." else "invalid_credential"
    assert (answer.status_code, answer.json()["error"], answer.json()["detail"]) == (401, code, detail)
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"X-Forwarded-For": "203.0.113.9"}, 401),
        ({"X-Forwarded-For": "127.0.0.1, 203.0.113.9"}, 401),
        ({"X-Real-IP": "2001:db8::1"}, 401),
        ({"Forwarded": "for=203.0.113.9"}, 401),
        ({"X-Forwarded-For": "junk"}, 401),
        ({}, 200),
    ],
)
async def test_a_proxy_that_serves_other_machines_makes_a_key_needed(guarded, headers, status):
    async with guarded() as client:
        answer = await client.get("/x", headers=headers)
    assert answer.status_code == status
    if status == 401:
        assert "http.trusted_proxies" in answer.json()["hint"]


async def test_a_key_in_the_address_is_taken_out_of_it(guarded):
    async with guarded(access={"api_key": KEY}) as client:
        answer = await client.get("/x", params={"a": "1", "key": KEY, "b": "2"})
    assert answer.json()["query"] == "a=1&b=2"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8765", "[::1]:8765", "LOCALHOST:1", "localhost."])
async def test_loopback_names_are_accepted(guarded, host):
    async with guarded() as client:
        assert (await client.get("/x", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8765", "[::2]", ""])
async def test_a_foreign_host_is_refused_with_the_setting_that_would_allow_it(guarded, host):
    async with guarded() as client:
        answer = await client.get("/x", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]) == (421, "host_not_allowed")
    assert answer.json()["hint"] == "Add the name to http.allowed_hosts."


@pytest.mark.parametrize(
    ("settings", "status"),
    [
        ({"http": {"allowed_hosts": ["memory.example"]}}, 401),
        ({"http": {"allowed_hosts": ["Memory.example:8765"]}}, 401),
        ({"http": {"allowed_hosts": ["memory.example:1"]}}, 421),
        ({"http": {"allowed_hosts": ["*"]}}, 401),
        ({"host": "memory.example"}, 401),
        ({"host": "0.0.0.0"}, 401),
        ({"host": "0.0.0.0", "access": {"api_key": KEY}}, 200),
        ({"host": "::", "access": {"api_key": KEY}}, 200),
        ({"host": "127.0.0.1", "access": {"api_key": KEY}}, 421),
        ({"host": "0.0.0.0", "access": {"api_key": KEY}, "http": {"allowed_hosts": ["other.example"]}}, 421),
    ],
)
async def test_which_hosts_are_accepted_follows_from_the_settings(guarded, settings, status):
    key = {"X-API-Key": KEY} if "access" in settings else {}
    async with guarded(base_url="http://memory.example:8765", **settings) as client:
        assert (await client.get("/x", headers=key)).status_code == status


async def test_a_preflight_of_a_known_page_needs_no_key(guarded):
    headers = {
        "Origin": PAGE, "Access-Control-Request-Method": "PUT", "Access-Control-Request-Headers": "x-api-key",
    }  # fmt: skip
    async with guarded(access={"api_key": KEY}) as client:
        answer = await client.options("/x", headers=headers)
    assert answer.status_code == 204
    assert answer.headers["access-control-allow-origin"] == PAGE
    assert "access-control-allow-credentials" not in answer.headers
    assert answer.headers["access-control-allow-headers"] == "x-api-key"
    assert "PUT" in answer.headers["access-control-allow-methods"]


@pytest.mark.parametrize(("headers", "status"), [({}, 401), ({"X-API-Key": KEY}, 200)])
async def test_a_known_page_may_read_answers_and_refusals(guarded, headers, status):
    async with guarded(access={"api_key": KEY}) as client:
        answer = await client.get("/x", headers=headers | {"Origin": PAGE})
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (status, PAGE)
    assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://localhost:3011", "https://localhost:3000"])
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
async def test_a_page_of_another_site_is_refused_with_the_setting_that_would_allow_it(guarded, method, origin):
    headers = {"Origin": origin, "Access-Control-Request-Method": "POST"}
    async with guarded() as client:
        answer = await client.request(method, "/x", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "origin_not_allowed")
    assert answer.json()["hint"] == "Add the origin to http.cors_origins."
    assert "access-control-allow-origin" not in answer.headers


async def test_a_page_of_the_service_itself_may_call(guarded):
    async with guarded() as client:
        assert (await client.post("/x", headers={"Origin": "http://localhost:8765"})).status_code == 200


async def test_any_page_may_call_if_that_is_configured(guarded):
    async with guarded(http={"cors_origins": ["*"]}) as client:
        answer = await client.get("/x", headers={"Origin": "https://any.example"})
    assert answer.headers["access-control-allow-origin"] == "*"
    assert "access-control-allow-credentials" not in answer.headers


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"x" * 1024, 200),
        (b"x" * 1025, 413),
        (chunks(b"x" * 512, b"x" * 512), 200),
        (chunks(b"x" * 512, b"x" * 513), 413),
    ],
)
async def test_a_body_over_the_limit_is_refused_declared_or_streamed(guarded, content, status):
    async with guarded(limits={"body": 1024}) as client:
        answer = await client.post("/x", content=content)
    assert answer.status_code == status
    if status == 413:
        assert answer.json()["error"] == "too_large"
        assert "the limit is 1,024 (limits.body)" in answer.json()["detail"]
        assert "x-request-id" in answer.headers


async def test_a_streamed_body_over_the_limit_is_refused_by_the_api_too(make_client):
    async with make_client(limits={"body": 1024}) as client:
        answer = await client.post(
            "/api/v1/memories",
            content=chunks(b'{"user_id": "a", "text": "', b"x" * 2000, b'"}'),
            headers={"Content-Type": "application/json"},
        )
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")


@pytest.mark.parametrize("length", ["-1", "1e3", "٣", "9" * 30])
async def test_a_length_that_is_none_is_refused(guarded, length):
    async with guarded() as client:
        answer = await client.post("/x", headers={"Content-Length": length.encode()})
    assert answer.status_code == 400


async def test_an_unexpected_failure_is_logged_under_the_id_that_the_answer_names(guarded, caplog):
    async with guarded(fails, access={"api_key": KEY}) as client:
        with caplog.at_level(logging.ERROR, logger="openmemory.doors.rest.http.guard"):
            answer = await client.get("/x", params={"key": KEY})
    assert (answer.status_code, answer.json()["error"]) == (500, "internal_error")
    request_id = answer.headers["x-request-id"]
    assert request_id in answer.json()["detail"]
    assert "secret" not in answer.text
    assert request_id in caplog.text
    assert "the secret of the house" in caplog.text
    assert KEY not in caplog.text


@pytest.mark.parametrize(("given", "kept"), [("a-1.b:C_2", True), ("x" * 129, False), ("a b", False), ("", False)])
async def test_a_sane_request_id_is_kept_and_any_other_replaced(guarded, given, kept):
    async with guarded() as client:
        answer = await client.get("/x", headers={"X-Request-ID": given})
    assert (answer.headers["x-request-id"] == given) is kept
    assert answer.headers["x-request-id"]


async def test_a_stream_passes_unbuffered(guard):
    first_was_read = asyncio.Event()

    async def streams(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first", "more_body": True})
        async with asyncio.timeout(5):
            await first_was_read.wait()
        await send({"type": "http.response.body", "body": b"second"})

    sent: list[bytes] = []

    async def send(message):
        sent.append(message.get("body", b""))
        if message.get("body") == b"first":
            first_was_read.set()

    scope = {
        "type": "http", "method": "GET", "path": "/x", "query_string": b"", "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    await guard(streams)(scope, None, send)
    assert sent == [b"", b"first", b"second"]


async def test_websockets_are_refused(guard):
    sent = []

    async def send(message):
        sent.append(message)

    await guard()({"type": "websocket", "path": "/x"}, None, send)
    assert sent == [{"type": "websocket.close", "code": 1008}]


@pytest.mark.parametrize("declared", [True, False])
async def test_a_client_that_sends_everything_first_is_still_told_why(guard, declared):
    """Over TCP, where closing on unread bytes would break the connection before the answer is seen."""
    guard = guard(**{"limits": {"body": 1024}})
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        config = uvicorn.Config(guard, lifespan="off", log_config=None, access_log=False)
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve([listening]))
        try:
            body = b"x" * 4_000_000
            address = f"http://127.0.0.1:{listening.getsockname()[1]}"
            async with httpx.AsyncClient(base_url=address, trust_env=False) as client:
                answer = await client.post("/x", content=body if declared else chunks(*[body[:4096]] * 1000))
        finally:
            server.should_exit = True
            await serving
    assert (answer.status_code, answer.json()["error"]) == (413, "too_large")


async def test_a_body_that_ends_over_the_limit_is_refused_at_once(guard):
    """The body is read to its end already: nothing more comes that could be waited for."""
    messages = [
        {"type": "http.request", "body": b"x" * 1000, "more_body": True},
        {"type": "http.request", "body": b"x" * 1000, "more_body": False},
    ]
    sent = []

    async def receive():
        assert messages, "asked for more than there is"
        return messages.pop(0)

    async def send(message):
        sent.append(message)

    scope = {
        "type": "http", "method": "POST", "path": "/x", "query_string": b"", "headers": [(b"host", b"localhost")],
    }  # fmt: skip
    await guard(**{"limits": {"body": 1024}})(scope, receive, send)
    assert sent[0]["status"] == 413

"""What keeps the pages of others out of a browser that can reach the service, and strange bodies out of the service."""

from __future__ import annotations

import gzip
import json

import pytest

from openmemory.config.settings import load
from openmemory.doors.rest.http.hardening import harden
from openmemory.errors import SetupError
from tests.doors.rest.test_guard import KEY, PAGE

ADD = "/api/v1/memories"
JSON = {"Content-Type": "application/json"}


@pytest.mark.parametrize(
    ("path", "status"),
    [("/health/live", 200), ("/api/v1/memories?user_id=nobody-at-all", 200), ("/nothing", 404), ("/mcp", 405)],
)
async def test_every_answer_tells_a_browser_to_do_nothing_with_it(client, path, status):
    answer = await client.get(path)
    assert answer.status_code == status
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["x-frame-options"] == "DENY"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert answer.headers["cross-origin-resource-policy"] == "same-origin"
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-security-policy"].startswith("default-src 'none'; frame-ancestors 'none'")


@pytest.mark.parametrize("headers", [{"Host": "evil.example"}, {"Origin": "https://evil.example"}, {}])
async def test_refusals_are_protected_too(guarded, headers):
    async with guarded(access={"api_key": KEY}) as client:
        answer = await client.get("/x", headers=headers)
    assert answer.status_code in (401, 403, 421)
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["cache-control"] == "no-store"


def test_what_an_answer_sets_itself_stays():
    own = [(b"cache-control", b"private"), (b"content-security-policy", b"default-src 'self'")]
    headers = harden(own, [(b"x-request-id", b"1")], shared=False)
    names = [name for name, _ in headers]
    assert len(names) == len(set(names))
    assert own == headers[:2]


async def test_a_page_that_may_call_may_have_the_answer(guarded):
    async with guarded() as client:
        answer = await client.get("/x", headers={"Origin": PAGE})
    assert "cross-origin-resource-policy" not in answer.headers
    assert answer.headers["x-content-type-options"] == "nosniff"


async def test_the_documentation_loads_nothing_from_other_machines(client):
    page = await client.get("/docs")
    assert page.status_code == 200
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert "://" not in page.text
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "script-src 'self'" in policy
    assert "<script>" not in page.text
    assert page.headers["cross-origin-opener-policy"] == "same-origin"
    assert "camera=()" in page.headers["permissions-policy"]
    for name, kind in (
        ("swagger-ui-bundle.js", "text/javascript"), ("start.js", "text/javascript"), ("swagger-ui.css", "text/css"),
    ):  # fmt: skip
        assert f'"docs/{name}"' in page.text
        part = await client.get(f"/docs/{name}")
        assert part.status_code == 200
        assert part.headers["content-type"].startswith(kind)
        again = await client.get(f"/docs/{name}", headers={"If-None-Match": part.headers["etag"]})
        assert (again.status_code, again.content) == (304, b"")


@pytest.mark.parametrize(
    "path", ["/redoc", "/docs/oauth2-redirect", "/docs/redoc.standalone.js", "/docs/..%2Fcore.py", "/docs/core.py"]
)
async def test_nothing_else_is_served_beside_the_documentation(client, path):
    assert (await client.get(path)).status_code == 404


async def test_the_documentation_needs_the_key_and_what_it_loads_does_not(make_client):
    async with make_client(access={"api_key": KEY}) as client:
        assert (await client.get("/docs")).status_code == 401
        assert (await client.get("/openapi.json")).status_code == 401
        assert (await client.get("/docs", params={"key": KEY})).status_code == 200
        assert (await client.get("/docs/start.js")).status_code == 200


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize(
    ("mode", "destination"),
    [("no-cors", "image"), ("no-cors", "script"), ("navigate", "iframe"), ("navigate", "document")],
)
@pytest.mark.parametrize("path", ["/api/v1/memories?user_id=a", "/mcp/sse", "/x"])
async def test_what_a_foreign_page_makes_a_browser_ask_for_is_refused(guarded, site, mode, destination, path):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": destination}
    async with guarded() as client:
        answer = await client.get(path, headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "origin_not_allowed")
    assert "http.cors_origins" in answer.json()["hint"]


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/x", {}),
        ("/x", {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"}),
        ("/x", {"Sec-Fetch-Site": "same-origin"}),
        ("/docs", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}),
        ("/x", {"Sec-Fetch-Site": "same-site", "Origin": PAGE}),
    ],
)
async def test_what_a_person_asks_for_and_what_may_call_is_answered(guarded, path, headers):
    async with guarded() as client:
        assert (await client.get(path, headers=headers)).status_code == 200


async def test_a_link_may_lead_to_a_page_but_not_into_a_frame_or_with_a_form(guarded):
    headers = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}
    async with guarded() as client:
        assert (await client.get("/docs", headers=headers | {"Sec-Fetch-Dest": "iframe"})).status_code == 403
        assert (await client.post("/docs", headers=headers | {"Sec-Fetch-Dest": "document"})).status_code == 403


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_any_page_may_ask_if_that_is_configured(guarded, site):
    async with guarded(http={"cors_origins": ["*"]}) as client:
        assert (await client.get("/x", headers={"Sec-Fetch-Site": site})).status_code == 200


@pytest.mark.parametrize(
    ("host", "origin", "scheme", "status"),
    [
        ("memory.example", "http://memory.example", "http", 200),
        ("memory.example", "https://memory.example", "http", 200),
        ("memory.example", "https://memory.example", "https", 200),
        ("memory.example", "http://memory.example", "https", 403),
        ("Memory.Example", "http://memory.EXAMPLE", "http", 200),
        ("memory.example", "http://memory.example:81", "http", 403),
        ("memory.example:8765", "http://memory.example", "http", 403),
        ("memory.example", "http://memory.example.evil.example", "http", 403),
        ("memory.example", "http://evil@memory.example", "http", 403),
        ("memory.example", "null", "http", 403),
        ("", "null", "http", 403),
        ("null", "null", "http", 403),
        ("", "", "http", 403),
    ],
)
async def test_a_page_is_our_own_only_under_the_very_name_that_is_asked(guarded, host, origin, scheme, status):
    settings = {"http": {"allowed_hosts": ["*"]}, "access": {"api_key": KEY}}
    async with guarded(base_url=f"{scheme}://x", **settings) as client:
        headers = {"Host": host, "Origin": origin, "X-API-Key": KEY}
        assert (await client.get("/x", headers=headers)).status_code == status


@pytest.mark.parametrize(
    "host",
    [
        "localhost:80:80", "[::1].evil.example", "[::1]evil", "[::1", "user@localhost", "localhost@evil.example",
        "localhost/", "localhost, evil.example", "localhost evil.example", "127.0.0.1.nip.io", "2130706433", "0.0.0.0",
        "localhost:80a", "[::ffff:127.0.0.1]", "localhost#.evil.example",
    ],
)  # fmt: skip
async def test_what_only_resembles_a_name_of_ours_is_none(guarded, host):
    async with guarded() as client:
        answer = await client.get("/x", headers={"Host": host})
    assert (answer.status_code, answer.json()["error"]) == (421, "host_not_allowed")


@pytest.mark.parametrize(
    ("origins", "origin", "allowed"),
    [([PAGE], PAGE, True), ([PAGE], "https://evil.example", False), (["*"], "https://public.example", False)],
)
async def test_only_a_page_that_is_named_may_come_from_the_public_network(guarded, origins, origin, allowed):
    headers = {
        "Origin": origin, "Access-Control-Request-Method": "GET", "Access-Control-Request-Private-Network": "true",
    }  # fmt: skip
    async with guarded(http={"cors_origins": origins}) as client:
        answer = await client.options("/x", headers=headers)
    assert ("access-control-allow-private-network" in answer.headers) is allowed
    assert ("access-control-allow-methods" in answer.headers) is (origin != "https://evil.example")


@pytest.mark.parametrize("path", ["/mcp", "/mcp/sse", "/mcp/claude/http/bob", "/mcp/messages/?session_id=1"])
async def test_the_mcp_doors_follow_the_same_rule(client, path):
    preflight = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "mcp-protocol-version"}
    known = await client.options(path, headers=preflight | {"Origin": PAGE})
    assert (known.status_code, known.headers["access-control-allow-origin"]) == (204, PAGE)
    foreign = await client.options(path, headers=preflight | {"Origin": "https://evil.example"})
    assert foreign.status_code == 403
    assert "access-control-allow-origin" not in foreign.headers


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("cors_origins", "null", "'null' must be an origin such as https://example.com"),
        ("cors_origins", "example.com", "'example.com' must be an origin"),
        ("cors_origins", "https://example.com/app", "must be an origin"),
        ("cors_origins", "http://localhost:3010-3000", "must have a range of ports such as http://localhost:3000-3010"),
        ("cors_origins", "http://localhost:3000-70000", "must have a range of ports"),
        ("trusted_proxies", "*", "'*' must be an IP address"),
        ("trusted_proxies", "proxy.local", "'proxy.local' must be an IP address"),
        ("trusted_proxies", "10.0.0.1/8", "must be an IP address"),
    ],
)
def test_what_no_browser_or_proxy_is_called_stops_the_start(name, value, said):
    with pytest.raises(SetupError, match=f"OPENMEMORY_HTTP_{name.upper()}.*") as failed:
        load(environ={f"OPENMEMORY_HTTP_{name.upper()}": value})
    assert said in str(failed.value)


@pytest.mark.parametrize("encoding", ["gzip", "GZIP", "deflate", "br", "zstd", "gzip, identity", "x" * 200])
@pytest.mark.parametrize("path", [ADD, "/mcp", "/mcp/messages/?session_id=1"])
async def test_a_compressed_body_is_refused_at_every_door(client, path, encoding):
    body = gzip.compress(b"0" * 100_000)
    answer = await client.post(path, content=body, headers=JSON | {"Content-Encoding": encoding})
    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")
    assert answer.json()["detail"].startswith("Content-Encoding: must be left out, not '")
    assert answer.headers["accept-encoding"] == "identity"


async def test_a_body_that_is_declared_to_be_as_it_is_is_taken(client, new_user):
    headers = JSON | {"Content-Encoding": "identity"}
    answer = await client.post(ADD, content=json.dumps({"user_id": new_user, "text": "t"}), headers=headers)
    assert answer.status_code == 200


FINE = b'{"user_id": "u", "text": "t"}'


@pytest.mark.parametrize(
    ("content", "status"),
    [
        (b"[" * 100_000, 400),
        (b"[" * 100_000 + b"]" * 100_000, 400),
        (b'{"a":' * 100_000 + b"1" + b"}" * 100_000, 400),
        (b'{"user_id": "u", "text": "t", "metadata": {"n": 1e400}}', 422),
        (b'{"user_id": "u", "text": "t", "metadata": {"n": -1e400}}', 422),
        (b'{"user_id": "u", "text": "t", "metadata": {"n": ' + b"9" * 100_000 + b"}}", 400),
        (b'{"user_id": "u", "text": "t\\u0000"}', 422),
        (b"\xef\xbb\xbf" + FINE, 400),
        (FINE.decode().encode("utf-16"), 400),
        (FINE.decode().encode("utf-32"), 400),
        (FINE + b"\x00", 400),
        (FINE + FINE, 400),
    ],
)
async def test_a_strange_body_is_answered_with_what_is_wrong(client, content, status):
    answer = await client.post(ADD, content=content, headers=JSON)
    assert answer.status_code == status
    assert answer.json()["detail"]


async def test_of_two_values_of_one_key_the_last_counts(client, new_user):
    content = f'{{"user_id": "{new_user}", "text": "first", "text": "last"}}'.encode()
    answer = await client.post(ADD, content=content, headers=JSON)
    assert (answer.status_code, answer.json()["content"]) == (200, "last")

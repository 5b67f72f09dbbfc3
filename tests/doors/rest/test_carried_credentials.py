"""Keys in the address and in a browser's cookie: where they may stand, whom they serve, who repeats them."""

from __future__ import annotations

import logging
import re
from dataclasses import replace
from http.cookies import SimpleCookie
from urllib.parse import quote, unquote

import httpx
import pytest
from sqlalchemy import text

from openmemory.access.schemas import KeyCreate
from openmemory.config.settings import Settings
from openmemory.doors.rest.http.credentials import COOKIE
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from tests.doors.mcp.conftest import serving
from tests.doors.mcp.streams import stream_of, tool

KEY = "quiet otter/velvet+compass"
OWN = "http://localhost:8765"
PAGE = "http://localhost:3000"
STRANGER = "https://evil.example"
IN_PATH = f"/key/{quote(KEY, safe='')}"


@pytest.fixture
async def sent(services) -> dict[str, str]:
    """The cookies of a browser that is signed in with `KEY`."""
    return {"Cookie": f"theme=dark; {COOKIE}={await session_of(services, KEY)}"}


async def session_of(services: Services, key: str) -> str:
    return await services.browser_sessions.open(key, LOCAL, 60)


async def echo(scope, receive, send):
    body = f"{scope['method']} {scope['path']} {scope['raw_path'].decode()} {scope['query_string'].decode()}"
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
    await send({"type": "http.response.body", "body": body.encode()})


@pytest.mark.parametrize(
    ("rest", "path"),
    [
        ("/api/v1/memories/filter", "/api/v1/memories/filter"),
        ("//api/v1/stats", "/api/v1/stats"),
        ("/mcp/a%2Fb/sse/c", "/mcp/a/b/sse/c"),
        ("", "/"),
        ("/x/key/y", "/x/key/y"),
    ],
)
async def test_a_key_in_the_path_opens_and_is_taken_out_of_it(guarded, rest, path):
    async with guarded(echo, access={"api_key": KEY}) as client:
        answer = await client.post(f"{IN_PATH}{rest}?a=1", headers={"Content-Type": "application/json"})
    assert answer.status_code == 200
    assert answer.text == f"POST {path} /{rest.lstrip('/')} a=1"


@pytest.mark.parametrize(
    "prefix", ["//key/", "/Key/", "/KEY//", "///kEy/", "/%6bey/", "/%4B%65y/", "/key%2F", "/%2fkey/"]
)
async def test_a_key_in_the_path_is_taken_out_however_it_is_spelt(guarded, prefix):
    async with guarded(echo, access={"api_key": KEY}) as client:
        answer = await client.get(f"{OWN}{prefix}{quote(KEY, safe='')}//mcp/?a=1")
    assert (answer.status_code, answer.text) == (200, "GET /mcp/ /mcp/ a=1")


@pytest.mark.parametrize("name", ["Key", "KEY", "%6Bey", "k%45y"])
async def test_a_key_in_the_query_is_taken_out_however_it_is_spelt(guarded, name):
    async with guarded(echo, access={"api_key": KEY}) as client:
        answer = await client.get(f"/x?a=1&{name}={quote(KEY)}&monkey=2")
    assert (answer.status_code, answer.text) == (200, "GET /x /x a=1&monkey=2")


@pytest.mark.parametrize("path", ["/key/wrong/x", "/key//x", "/keys/x", f"/x/key/{quote(KEY, safe='')}"])
async def test_no_other_path_opens(guarded, path):
    async with guarded(echo, access={"api_key": KEY}) as client:
        assert (await client.get(path)).status_code == 401


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        (f"/key/wrong/x?key={quote(KEY)}", {}, 200),
        (f"{IN_PATH}/x?key=wrong", {}, 401),
        (f"{IN_PATH}/x", {"X-API-Key": "wrong"}, 401),
        ("/key/wrong/x", {"X-API-Key": KEY}, 200),
        ("/x?key=wrong", {"Authorization": f"Bearer {KEY}", "X-API-Key": "wrong"}, 200),
        (f"{IN_PATH}/x", {"Authorization": "Bearer wrong"}, 401),
        ("/key/wrong/x", {"Cookie": f"{COOKIE}={KEY}"}, 401),
        (f"{IN_PATH}/x", {"Cookie": f"{COOKIE}=wrong"}, 200),
    ],
)
async def test_headers_go_before_the_query_the_query_before_the_path_and_the_cookie_comes_last(
    guarded, path, headers, status
):
    async with guarded(echo, access={"api_key": KEY}) as client:
        assert (await client.get(path, headers=headers)).status_code == status


async def test_the_page_of_an_origin_that_is_named_calls_with_the_key_in_its_path(guarded):
    async with guarded(echo, access={"api_key": KEY}) as client:
        asked = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}
        asked["Access-Control-Request-Headers"] = "content-type"
        before = await client.options(f"{IN_PATH}/api/v1/memories/filter", headers=asked)
        assert before.status_code == 204
        assert before.headers["access-control-allow-origin"] == PAGE
        answer = await client.post(f"{IN_PATH}/api/v1/memories/filter", headers={"Origin": PAGE})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == PAGE


@pytest.mark.parametrize("path", [f"/?key={quote(KEY, safe='')}", f"{IN_PATH}/", IN_PATH])
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_browser_that_opens_the_address_with_a_key_gets_a_cookie_that_no_script_reads(guarded, path, scheme):
    async with guarded(echo, base_url=f"{scheme}://localhost:8765", access={"api_key": KEY}) as client:
        answer = await client.get(path, headers={"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate"})
        assert (answer.status_code, answer.next_request.url.path) == (303, "/")
        assert not answer.headers["location"].startswith("/")
        assert answer.headers["cache-control"] == "no-store"
        cookie = SimpleCookie(answer.headers["set-cookie"])[f"__Host-{COOKIE}" if scheme == "https" else COOKIE]
        assert cookie["httponly"]
        assert KEY not in unquote(cookie.value)
        assert cookie["samesite"].lower() == "strict"
        assert cookie["path"] == "/"
        assert bool(cookie["secure"]) is (scheme == "https")
        assert not cookie["domain"]
        assert (await client.get("/x", headers={"Sec-Fetch-Site": "same-origin"})).status_code == 200


async def test_a_wrong_key_signs_nobody_in(guarded):
    async with guarded(echo, access={"api_key": KEY}) as client:
        answer = await client.get("/?key=wrong")
    assert answer.status_code == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_sites_link_signs_nobody_in(guarded, site):
    headers = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with guarded(echo, access={"api_key": KEY}) as client:
        answer = await client.get(f"/?key={quote(KEY)}", headers=headers)
    assert (answer.status_code, answer.json()["error"]) == (403, "origin_not_allowed")
    assert "set-cookie" not in answer.headers


ELSEWHERE = {
    "base_url": "http://192.168.1.5:8765", "access": {"api_key": KEY}, "host": "0.0.0.0",
    "http": {"allowed_hosts": ["192.168.1.5"]},
}  # fmt: skip
"""Over plain HTTP to another machine, where browsers send no Sec-Fetch-Site."""


@pytest.mark.parametrize("referer", ["https://evil.example/", "http://192.168.1.5:3000/x", "http://192.168.1.5:8765.x"])
async def test_a_link_of_another_site_signs_nobody_in_where_a_browser_tells_no_site(guarded, referer):
    async with guarded(**ELSEWHERE) as client:
        answer = await client.get(f"/?key={quote(KEY)}", headers={"Referer": referer})
        assert (answer.status_code, answer.json()["error"]) == (403, "origin_not_allowed")
        assert "set-cookie" not in answer.headers
        counted = await client.get("/x", headers={"Referer": referer, "Cookie": f"{COOKIE}={quote(KEY)}"})
        assert (counted.status_code, counted.json()["error"]) == (403, "origin_not_allowed")


async def test_where_a_browser_tells_nothing_the_person_is_asked_and_only_our_own_page_can_answer(guarded):
    """A link may forbid the browser to tell its referrer."""
    async with guarded(echo, **ELSEWHERE) as client:
        question = await client.get(f"/?key={quote(KEY)}")
        assert question.status_code == 200
        assert question.headers["content-type"].startswith("text/html")
        assert "set-cookie" not in question.headers
        policy = question.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "form-action 'self'" in policy
        assert "frame-ancestors 'none'" in policy
        assert question.headers["cache-control"] == "no-store"
        assert "<script" not in question.text
        # With `no-referrer`, which every other answer says, a browser would send `Origin: null` with the form.
        assert '<meta name="referrer" content="strict-origin">' in question.text
        [action] = re.findall(r'<form method="post" action="([^"]+)">', question.text)
        action = f"/{action}"
        for headers in ({}, {"Origin": "null"}, {"Origin": "https://evil.example"}):
            assert "set-cookie" not in (await client.post(action, headers=headers)).headers
        form = {"Origin": "http://192.168.1.5:8765", "Content-Type": "application/x-www-form-urlencoded"}
        answer = await client.post(action, headers=form)
        assert (answer.status_code, answer.next_request.url.path) == (303, "/")
        assert not answer.headers["location"].startswith("/")
        assert (await client.get("/x")).status_code == 200


async def test_a_wrong_key_is_not_even_asked_about(guarded):
    async with guarded(**ELSEWHERE) as client:
        answer = await client.get('/?key="><script>')
    assert answer.status_code == 401
    assert "script" not in answer.text


async def test_a_cookie_is_no_key_and_a_key_is_no_cookie(guarded, services):
    session = await session_of(services, KEY)
    async with guarded(echo, access={"api_key": KEY}) as client:
        assert (await client.get("/x", headers={"Authorization": f"Bearer {session}"})).status_code == 401
        assert (await client.get("/x", headers={"Cookie": f"{COOKIE}={quote(KEY, safe='')}"})).status_code == 401
        assert (await client.get("/x", headers={"Cookie": f"{COOKIE}={session}"})).status_code == 200
    async with services.database.statement() as tx:
        stored = (await tx.execute(text("SELECT to_jsonb(s) FROM browser_sessions AS s"))).all()
    assert KEY.encode().hex() not in str(stored)
    assert session not in str(stored)


@pytest.mark.parametrize("end", ["revoked", "rotated", "signed out"])
async def test_a_session_ends_with_its_key_and_with_signing_out(guarded, services, new_user, end):
    key = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    kept = {"Cookie": f"{COOKIE}={await session_of(services, key.key)}"}
    async with guarded(echo, access={"require": "always"}) as client:
        assert (await client.get("/x", headers=kept)).status_code == 200
        if end == "revoked":
            await services.keys.revoke(LOCAL, key.id)
        elif end == "rotated":
            await services.keys.rotate(LOCAL, key.id)
        else:
            await client.post("/logout", headers=kept)
        assert (await client.get("/x", headers=kept)).status_code == 401


@pytest.mark.parametrize("path", ["/logout", "/logout/"])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_signing_out_takes_the_cookie_away(guarded, method, path):
    async with guarded(echo, access={"api_key": KEY}) as client:
        await client.get(f"/?key={quote(KEY, safe='')}", headers={"Sec-Fetch-Site": "none"})
        assert COOKIE in client.cookies
        assert (await client.request(method, path)).status_code == 303
        assert COOKIE not in client.cookies
        assert (await client.get("/x")).status_code == 401


MULTIPART = {"Content-Type": "multipart/form-data; boundary=b"}
SIMPLE = {"Content-Type": "text/plain"}


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", {"Sec-Fetch-Site": "none"}, 200),
        ("GET", {}, 200),
        ("GET", {"Origin": OWN}, 200),
        ("GET", {"Origin": PAGE}, 200),
        ("POST", {"Origin": OWN}, 200),
        ("POST", {"Origin": OWN, **MULTIPART}, 200),
        ("POST", {"Origin": PAGE}, 200),
        ("POST", {"Sec-Fetch-Site": "same-origin"}, 200),
        ("GET", {"Sec-Fetch-Site": "cross-site"}, 403),
        ("GET", {"Sec-Fetch-Site": "same-site"}, 403),
        ("GET", {"Origin": STRANGER}, 403),
        ("GET", {"Origin": "null"}, 403),
        ("POST", {"Origin": STRANGER, **SIMPLE}, 403),
        ("POST", {"Origin": STRANGER, **MULTIPART}, 403),
        ("POST", {"Origin": "http://localhost:8766", **MULTIPART}, 403),
        ("POST", {"Origin": "null", **MULTIPART}, 403),
        ("POST", {"Sec-Fetch-Site": "none"}, 403),
        ("POST", {"Sec-Fetch-Site": "cross-site", **MULTIPART}, 403),
        ("POST", SIMPLE, 403),
        ("POST", MULTIPART, 403),
        ("DELETE", {}, 403),
    ],
)
@pytest.mark.parametrize("origins", [(PAGE,), ("*", PAGE)])
async def test_a_cookie_alone_counts_for_own_and_named_pages_only(guarded, sent, method, headers, status, origins):
    async with guarded(echo, access={"api_key": KEY}, http={"cors_origins": origins}) as client:
        answer = await client.request(method, "/x", headers=sent | headers)
    assert answer.status_code == status
    if status == 403:
        assert answer.json()["error"] == "origin_not_allowed"


NAMED = ["http://localhost:3000-3010"]


@pytest.mark.parametrize(
    ("settings", "headers", "status"),
    [
        ({"access": {"api_key": KEY}}, {}, 403),
        ({"access": {"require": "always"}}, {}, 403),
        ({}, {"Via": "1.1 proxy"}, 403),
        ({"access": {"api_key": KEY}, "http": {"cors_origins": NAMED}}, {}, 200),
        ({"access": {"api_key": KEY}, "http": {"allowed_hosts": ["localhost"]}}, {}, 403),
        ({}, {}, 200),
    ],
)
@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/keys"), ("GET", "/x"), ("DELETE", "/api/v1/keys/1")])
async def test_a_cookie_does_not_count_for_pages_that_nobody_has_named(
    guarded, services, settings, headers, status, method, path
):
    """Whatever another program serves on a port of this machine could make itself keys with an administrator's."""
    admin = await services.keys.create(LOCAL, KeyCreate(name="admin", everyone=True, scopes=["admin"]))
    key = settings.get("access", {}).get("api_key", admin.key)
    sent = {"Cookie": f"{COOKIE}={await session_of(services, key)}", "Origin": PAGE} | headers
    async with guarded(echo, **settings) as client:
        answer = await client.request(method, path, headers=sent)
        assert answer.status_code == status
        # It may read what it asks for with a key of its own, and with the cookie only what that would open.
        assert answer.headers["access-control-allow-origin"] == PAGE
        if "Via" not in headers:
            assert ("access-control-allow-credentials" in answer.headers) is (status == 200)
        assert (await client.request(method, path, headers=sent | {"X-API-Key": key})).status_code == 200


async def test_a_page_that_nobody_has_named_signs_no_browser_in(guarded):
    async with guarded(echo, access={"api_key": KEY}) as client:
        answer = await client.post(f"/?key={quote(KEY)}", headers={"Origin": PAGE})
    assert "set-cookie" not in answer.headers


async def test_a_page_of_any_origin_has_no_use_of_the_cookie(guarded, sent):
    async with guarded(echo, access={"api_key": KEY}, http={"cors_origins": ("*",)}) as client:
        answer = await client.post("/x", headers=sent | {"Origin": STRANGER})
        assert answer.status_code == 403
        sent |= {"Origin": STRANGER, "X-API-Key": KEY}
        assert (await client.post("/x", headers=sent)).status_code == 200


async def test_a_cookie_whose_key_has_ended_is_forgotten(guarded):
    async with guarded(echo, access={"api_key": KEY}) as client:
        answer = await client.get("/x", headers={"Cookie": f"{COOKIE}=of-yesterday"})
    assert answer.status_code == 401
    assert SimpleCookie(answer.headers["set-cookie"])[COOKIE]["max-age"] == "0"


async def test_where_no_key_is_needed_a_cookie_of_another_service_of_this_machine_does_no_harm(guarded):
    async with guarded(echo) as client:
        assert (await client.get("/x", headers={"Cookie": f"{COOKIE}=of-another-port"})).status_code == 200


@pytest.fixture
async def secret(services, new_user) -> str:
    """A key of the test's own user."""
    return (await services.keys.create(LOCAL, KeyCreate(name=f"page of {new_user}", user_id=new_user))).key


async def test_nothing_that_is_logged_or_answered_repeats_the_key_of_an_address(
    make_client, services, secret, new_user, caplog
):
    caplog.set_level(logging.DEBUG)
    said = []
    async with make_client(access={"require": "always"}) as client:
        for path in (
            "/api/v1/memories",
            "/nothing/here",
            "/api/v1/memories/not-an-id",
            "/mcp/messages/",
            "/mcp/a/http",
        ):
            for address in (f"/key/{secret}{path}?user_id={new_user}", f"{path}?user_id={new_user}&key={secret}"):
                for method in ("GET", "POST"):
                    answer = await client.request(method, address)
                    assert answer.status_code != 401
                    said.append(answer.text + str(answer.headers))
    async with services.database.transaction() as tx:
        rows = await tx.execute(text("SELECT e::text FROM audit_events AS e ORDER BY id DESC LIMIT 200"))
        said += [row[0] for row in rows]
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    assert not [line for line in (*said, *ours) if secret in line]


WRONG = "om_abcdefgh_" + "s" * 43
MISSPELT = [
    "//key/{key}/mcp", "/Key/{key}/mcp", "/key/{key}", "/key/{key}/", "/key//{key}//mcp//", "/%6bey/{key}/mcp",
    "/key%2F{key}%2Fmcp", "/mcp/key/{key}", "/mcp/{key}", "/api/key/{key}/v1/memories", "/x/{key}", "/{key}",
    "/keys/{key}/mcp", "/mcp/sse/{key}", "/mcp/claude/sse/{key}", "/mcp/{key}/http/alice", "/mcp/key/sse/{key}",
    "/mcp?Key={key}", "/mcp?KEY={key}", "/mcp?%6bey={key}", "/mcp?api_key={key}", "/mcp?token={key}",
    "/api/v1/memories/{key}", "/api/v1/memories?user_id={key}", "/health/ready/{key}", "/docs/{key}",
    "/.well-known/oauth-protected-resource/key/{key}/mcp", "/.well-known/oauth-protected-resource/mcp/{key}",
    "/.well-known/oauth-protected-resource//Key/{key}/mcp", "/.well-known/oauth-protected-resource/mcp/{key}/sse/x",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("address", MISSPELT)
async def test_no_refusal_repeats_what_looks_like_a_key_in_an_address(make_client, caplog, address):
    caplog.set_level(logging.DEBUG)
    oauth = {"issuer": "https://as.example.com", "resource": "https://memory.example.com"}
    said = []
    for settings in ({"access": {"require": "always"}}, {"oauth": oauth}, {}):
        async with make_client(address=f"203.0.113.{MISSPELT.index(address)}", **settings) as client:
            for method in ("GET", "POST", "DELETE"):
                answer = await client.request(method, OWN + address.format(key=WRONG))
                said.append(f"{answer.headers} {answer.text}")
    ours = [record.getMessage() for record in caplog.records if not record.name.startswith("httpx")]
    assert [line for line in (*said, *ours) if "s" * 43 in line] == []


async def test_the_log_of_a_failure_names_the_route_and_nothing_that_the_client_wrote(guarded, caplog):
    async def fails(scope, receive, send):
        raise RuntimeError("no")

    async with guarded(fails) as client:
        assert (await client.get(f"/x/{WRONG}")).status_code == 500
    assert "s" * 43 not in caplog.text


async def test_an_mcp_client_that_keeps_neither_headers_nor_query_works_with_the_key_in_its_path(
    services, secret, new_user
):
    settings = Settings.model_validate({"data_dir": services.settings.data_dir, "access": {"require": "always"}})
    async with (
        serving(replace(services, settings=settings)) as url,
        httpx.AsyncClient(base_url=url, timeout=20) as http,
    ):
        for prefix in (f"/key/{secret}/mcp/claude/sse/{new_user}", f"/key/{secret}/mcp/claude/sse/{new_user}/"):
            async with stream_of(http, prefix) as stream:
                assert stream.messages.startswith("/mcp/messages/?session_id=")
                await stream.shake_hands()
                added = await stream.answer(tool("add_memories", text=f"I came by {prefix[-1]}"))
                assert added["result"].get("isError", False) is False
                kept = f"/key/{secret}{stream.messages}"
                assert (await stream.answer({"id": 8, "method": "ping"}, kept))["result"] == {}
        message = {"jsonrpc": "2.0", "id": 1, **tool("list_memories")}
        headers = {"Accept": "application/json"}
        listed = await http.post(f"/key/{secret}/mcp/claude/http/{new_user}", json=message, headers=headers)
        assert len(listed.json()["result"]["structuredContent"]["result"]) == 2
        assert (await http.get(f"/mcp/claude/sse/{new_user}")).status_code == 401


async def test_sessions_that_have_ended_are_removed(services, new_user):
    key = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    principal = await services.keys.find(key.key)
    assert principal is not None
    over, revoked = [await services.browser_sessions.open(key.key, principal, seconds) for seconds in (-1, 60)]
    assert await services.browser_sessions.credential(over) is None
    assert await services.browser_sessions.credential(revoked) == key.key
    await services.keys.revoke(LOCAL, key.id)
    await services.browser_sessions.prune()
    async with services.database.statement() as tx:
        left = text("SELECT count(*) FROM browser_sessions WHERE key_id = :key")
        assert await tx.scalar(left, {"key": key.id}) == 0

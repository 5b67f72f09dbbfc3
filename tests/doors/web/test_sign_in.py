"""Signing a browser in with a key, and what each key then shows."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from html import unescape
from typing import Any
from urllib.parse import urljoin, urlsplit
from uuid import UUID

import httpx
import pytest

from openmemory.access.schemas import KeyCreate, KeyCreated
from openmemory.audit.schemas import AuditAction, AuditQuery
from openmemory.doors.rest.http.credentials import COOKIE
from openmemory.doors.web.frame import NAVIGATION
from openmemory.identity.principal import LOCAL
from openmemory.services import Services
from tests.addresses import unused_address
from tests.doors.rest.conftest import MakeClient
from tests.doors.web.conftest import Visitor

HERE = "http://memory.example:8765"
SETTINGS = {"categories", "policies", "archives", "keys", "models"}

MakeKey = Callable[..., Awaitable[KeyCreated]]
Opening = Callable[..., Any]


@pytest.fixture
def make_key(services: Services, new_user: str) -> MakeKey:
    """Makes a key for the test's user, or for everyone."""

    async def make(**about: Any) -> KeyCreated:
        whose = {} if about.get("everyone") else {"user_id": new_user}
        return await services.keys.create(LOCAL, KeyCreate.model_validate({"name": "test"} | whose | about))

    return make


@pytest.fixture
def outside(make_client: MakeClient) -> Opening:
    """Opens a browser on another machine. Each has its own address, because wrong keys are counted by address."""

    @asynccontextmanager
    async def opened(key: KeyCreated | None = None, **changes: Any) -> AsyncIterator[httpx.AsyncClient]:
        settings = {"access": {"require": "always"}, "host": "0.0.0.0"} | changes
        address = unused_address()
        async with make_client(base_url=HERE, address=address, **settings) as http:
            http.headers.update({"Origin": HERE, "X-From": address})
            if key is not None:
                answer = await http.post("/ui/sign-in", data={"key": key.key})
                assert answer.status_code == 303
            yield http

    return opened


async def test_a_page_without_a_cookie_shows_the_form(outside: Opening) -> None:
    async with outside() as http:
        answer = await http.get("/ui/memories", params={"category": "work"})
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["www-authenticate"].startswith("Bearer")
    assert '<input type="password" name="key"' in answer.text
    assert '<input type="hidden" name="next" value="memories?category=work">' in answer.text
    assert 'class="refusal"' not in answer.text


async def test_the_right_key_leads_to_the_page_that_was_asked_for(outside: Opening, make_key: MakeKey) -> None:
    key = await make_key()
    async with outside() as http:
        answer = await http.post("/ui/sign-in", data={"key": f" {key.key} ", "next": "memories?category=work"})
        assert answer.status_code == 303
        assert str(answer.next_request.url) == f"{HERE}/ui/memories?category=work"
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=strict" in cookie
        assert "; secure" not in cookie
        assert (await http.get("/ui/memories")).status_code == 200


async def test_over_https_the_cookie_stays_with_https(make_client: MakeClient, make_key: MakeKey) -> None:
    key = await make_key()
    base = "https://memory.example"
    async with make_client(base_url=base, access={"require": "always"}, host="0.0.0.0") as http:
        answer = await http.post("/ui/sign-in", data={"key": key.key}, headers={"Origin": base})
    assert "; secure" in answer.headers["set-cookie"].lower()


async def test_a_wrong_key_is_refused_in_words_and_the_page_that_was_asked_for_stays_known(outside: Opening) -> None:
    async with outside() as http:
        answer = await http.post("/ui/sign-in", data={"key": "om_wrong", "next": "memories?category=work"})
        assert answer.status_code == 401
        assert "The API key is invalid, revoked or expired." in answer.text
        assert 'name="next" value="memories?category=work"' in answer.text
        assert "om_wrong" not in answer.text
        assert COOKIE not in http.cookies
        empty = await http.post("/ui/sign-in", data={"key": " "})
        assert empty.status_code == 401


async def test_wrong_keys_are_counted_and_logged(outside: Opening, services: Services) -> None:
    async with outside() as http:
        statuses = [(await http.post("/ui/sign-in", data={"key": f"om_{n}"})).status_code for n in range(30)]
        last = await http.post("/ui/sign-in", data={"key": "om_x"})
        address = http.headers["X-From"]
    assert statuses[0] == 401
    assert last.status_code == 429
    assert "Too many wrong credentials from this address." in last.text
    events = (await services.audit.read(LOCAL, AuditQuery((AuditAction.CREDENTIAL_REFUSED,)))).events
    assert len([each for each in events if each.address == address]) == statuses.count(401)


@pytest.mark.parametrize(
    "to",
    [
        "https://evil.example/", "//evil.example", "/\\evil.example", "\\\\evil.example", "javascript:alert(1)",
        "../docs", "memories/../../docs", "a//evil.example", "/docs", "", "memories\r\nX: y", ".//evil.example",
    ],
)  # fmt: skip
async def test_the_next_page_is_one_of_ours(outside: Opening, make_key: MakeKey, to: str) -> None:
    key = await make_key()
    async with outside() as http:
        answer = await http.post("/ui/sign-in", data={"key": key.key, "next": to})
    assert answer.status_code == 303
    assert str(answer.next_request.url).startswith(f"{HERE}/ui/memories")
    assert "x" not in answer.headers


async def test_signing_in_at_the_form_itself_leads_to_the_memories(outside: Opening, make_key: MakeKey) -> None:
    async with outside() as http:
        shown = await http.get("/ui/sign-in")
        assert 'name="next" value="memories"' in shown.text
        wrong = await http.post("/ui/sign-in", data={"key": (await make_key()).key, "next": "memories"})
        assert wrong.next_request.url.path == "/ui/memories"


async def test_a_typed_address_with_a_key_leads_to_the_page(outside: Opening, make_key: MakeKey) -> None:
    key = await make_key()
    typed = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Accept": "text/html"}
    async with outside() as http:
        del http.headers["Origin"]
        answer = await http.get("/", params={"key": key.key}, headers=typed, follow_redirects=True)
    assert (answer.status_code, answer.url.path) == (200, "/ui/memories")
    assert key.key not in str(answer.url) + answer.text


async def test_signing_out_forgets_the_key(outside: Opening, make_key: MakeKey) -> None:
    async with outside(await make_key()) as http:
        assert "Sign out" in (await http.get("/ui/memories")).text
        answer = await http.post("/ui/sign-out", follow_redirects=True)
        assert answer.url.path == "/ui/sign-in"
        assert COOKIE not in http.cookies
        assert (await http.get("/ui/memories")).status_code == 401


async def test_a_revoked_key_shows_the_form_and_its_cookie_goes(
    outside: Opening, make_key: MakeKey, services: Services
) -> None:
    key = await make_key()
    async with outside(key) as http:
        shown = await http.get("/ui/memories")
        await services.keys.revoke(LOCAL, UUID(str(key.id)))
        token = re.search(r'name="token" value="(\w+)"', shown.text)
        assert token
        sent = await http.post("/ui/memories", data={"token": token[1], "text": "t"}, headers={"HX-Request": "true"})
        assert sent.status_code == 401
        assert "Load the page again to sign in." in sent.text
        assert "<form" not in sent.text
        session = await services.browser_sessions.open(key.key, LOCAL, 60)
        answer = await http.get("/ui/memories", headers={"Cookie": f"{COOKIE}={session}"})
        assert answer.status_code == 401
        assert "The API key is invalid, revoked or expired." in answer.text
        assert f'{COOKIE}=""' in answer.headers["set-cookie"]
        assert "Max-Age=0" in answer.headers["set-cookie"]


async def test_a_token_of_another_key_has_ended(outside: Opening, make_key: MakeKey) -> None:
    async with outside(await make_key()) as http:
        token = re.search(r'name="token" value="(\w+)"', (await http.get("/ui/memories")).text)
        assert token
        await http.post("/ui/sign-in", data={"key": (await make_key(name="other")).key})
        answer = await http.post("/ui/memories", data={"token": token[1], "text": "t"})
    assert answer.status_code == 403
    assert "This form is from another session of the browser. Load the page again." in " ".join(
        re.sub("<[^>]*>", " ", answer.text).split()
    )


@pytest.mark.parametrize("page", list(NAVIGATION))
async def test_a_key_that_only_reads_sees_nothing_to_change(outside: Opening, make_key: MakeKey, page: str) -> None:
    async with outside(await make_key(scopes=["read"])) as http:
        answer = await http.get(f"/ui/{page}", follow_redirects=True)
    assert answer.status_code == 200, answer.text
    assert set(re.findall(r'method="post" action="([^"]+)"', answer.text)) == {"./sign-out"}


@pytest.mark.slow
@pytest.mark.parametrize("page", list(NAVIGATION))
@pytest.mark.parametrize("bound", [{"app": "claude"}, {"namespaces": ["webshop"]}, {}])
async def test_each_key_opens_every_page_or_is_told_why_not(
    outside: Opening, make_key: MakeKey, page: str, bound: dict[str, Any]
) -> None:
    async with outside(await make_key(**bound)) as http:
        answer = await http.get(f"/ui/{page}", follow_redirects=True)
    if answer.status_code == 403:  # the page is of what an app does not see
        assert "Only " in answer.text
    else:
        assert answer.status_code == 200, answer.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("bound", "hidden"),
    [
        ({"app": "claude"}, {"apps", "activity", "system", *SETTINGS}),
        ({"namespaces": ["webshop"]}, {"apps", "activity", "system", *SETTINGS}),
        ({}, {"system", "keys", "models"}),
        ({"scopes": ["read", "write", "admin"], "everyone": True}, set()),
    ],
)
async def test_navigation_leads_only_to_what_the_key_opens(
    outside: Opening, make_key: MakeKey, new_user: str, services: Services, bound: dict[str, Any], hidden: set[str]
) -> None:
    await services.directory.caller(new_user, None, owner=True)
    async with outside(await make_key(**bound)) as http:
        chosen = {"user": new_user} if bound.get("everyone") else {}
        shown, found = "", set()
        for page in ("memories", "activity", "settings"):
            answer = await http.get(f"/ui/{page}", params=chosen)
            for bar in re.findall(r"<nav [^>]*>(.*?)</nav>", answer.text, re.DOTALL):
                found |= {urljoin(f"/ui/{page}", unescape(each)) for each in re.findall(r'href="([^"]+)"', bar)}
        for address in found:
            answer = await http.get(address)
            assert answer.status_code == 200, (address, answer.text)
            shown += answer.text
    assert "Only the user" not in shown
    assert "Only an administrator" not in shown
    assert "It needs a key" not in shown
    names = {urlsplit(address).path.rpartition("/")[2] for address in found}
    assert {*NAVIGATION, *SETTINGS} - names == hidden


async def test_a_key_shows_only_what_it_reaches(
    outside: Opening, make_key: MakeKey, new_user: str, remember: Callable[..., Any]
) -> None:
    await remember(new_user, "In the webshop", app="claude", namespace="webshop")
    await remember(new_user, "At home", app="cursor")
    await remember(f"not-{new_user}", "Of somebody else")

    async def shown(**bound: Any) -> str:
        async with outside(await make_key(**bound)) as http:
            text: str = (await http.get("/ui/memories", params={"state": "any"})).text
            return text

    assert "Of somebody else" not in await shown()
    assert "At home" in await shown()
    in_one = await shown(namespaces=["webshop"])
    assert "In the webshop" in in_one
    assert "At home" not in in_one
    assert f"{new_user} · claude" in await shown(app="claude")


async def test_only_a_key_of_every_user_chooses_the_user(
    outside: Opening, make_key: MakeKey, new_user: str, remember: Callable[..., Any]
) -> None:
    await remember(new_user, "Mine")
    other = f"not-{new_user}"
    await remember(other, "Of somebody else")
    async with outside(await make_key()) as http:
        assert 'name="user"' not in (await http.get("/ui/memories")).text
        refused = await http.get("/ui/memories", params={"user": other})
        assert refused.status_code == 403
        assert "This credential does not speak for the user" in refused.text
    async with outside(await make_key(everyone=True)) as http:
        assert 'name="user"' in (await http.get("/ui/memories")).text
        chosen = (await http.get("/ui/memories", params={"user": other})).text
        assert "Of somebody else" in chosen
        assert f'href="./memories?user={other}"' in chosen
        unknown = await http.get("/ui/memories", params={"user": "nobody-at-all"})
        assert unknown.status_code == 404
        assert 'href="./memories">To the memories' in unknown.text


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_another_site_opens_no_page_and_sends_no_form(outside: Opening, make_key: MakeKey, site: str) -> None:
    foreign = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    async with outside(await make_key()) as http:
        del http.headers["Origin"]
        assert (await http.get("/ui/memories", headers=foreign)).status_code == 403
        for path in ("/ui/memories", "/ui/sign-in", "/ui/sign-out"):
            for origin in ("https://evil.example", "null", "http://memory.example:9999"):
                answer = await http.post(path, headers=foreign | {"Origin": origin}, data={"key": "k"})
                assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)


async def test_a_site_that_may_call_signs_nobody_in(outside: Opening, make_key: MakeKey) -> None:
    key = await make_key()
    async with outside(http={"cors_origins": ["*"]}) as http:
        for path in ("/ui/sign-in", "/ui/sign-out"):
            answer = await http.post(path, data={"key": key.key}, headers={"Origin": "https://evil.example"})
            assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)
        assert (await http.post("/ui/sign-in", data={"key": key.key})).status_code == 303


async def test_files_of_the_pages_need_no_key(outside: Opening) -> None:
    async with outside() as http:
        shown = (await http.get("/ui/memories")).text
        for file in re.findall(r'(?:src|href)="\./(static/[^"]+)"', shown):
            answer = await http.get(f"/ui/{file}")
            assert answer.status_code == 200
            assert "immutable" in answer.headers["cache-control"]
        assert (await http.get("/ui/static/../page.py")).status_code in (401, 404)
        assert (await http.get("/ui/static/x")).status_code == 404


async def test_pages_load_nothing_from_elsewhere_and_are_not_kept(outside: Opening, make_key: MakeKey) -> None:
    async with outside(await make_key()) as http:
        for answer in (
            await http.get("/ui/memories"),
            await http.get("/ui/nothing"),
            await http.get("/ui/sign-in"),
        ):
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy
            assert "form-action 'self'" in policy
            assert "unsafe" not in policy
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert '<meta name="referrer" content="same-origin">' in answer.text
            assert "://" not in answer.text.replace('xmlns="http://www.w3.org/2000/svg"', "")


async def test_links_hold_behind_a_proxy_that_adds_a_path(outside: Opening, make_key: MakeKey) -> None:
    async with outside(await make_key()) as http:
        for path in ("/ui/memories", "/ui/sign-in", "/ui/nothing/below"):
            shown = (await http.get(path)).text
            addresses = re.findall(r'(?:href|src|action|hx-get)="([^"]*)"', shown)
            assert addresses
            assert not [each for each in addresses if not each.startswith(("./", "../", "#"))]


async def test_on_this_machine_no_key_is_needed(visitor: Visitor) -> None:
    shown = await visitor.get("memories")
    assert "Sign out" not in shown
    assert 'name="user"' in shown

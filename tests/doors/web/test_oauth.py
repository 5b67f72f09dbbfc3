"""Signing a browser in at a real authorization server."""

from __future__ import annotations

import re
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from html import unescape
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from openmemory.access.oauth.sign_in import OAuthSignIn
from openmemory.access.oauth.tokens import Tokens
from openmemory.config.settings import Settings
from openmemory.doors.rest.http.credentials import COOKIE as NAME
from openmemory.doors.server.application import create_app
from openmemory.doors.web.oauth import PENDING_COOKIE
from openmemory.egress.clients import Egress
from openmemory.services import Services
from tests.access.oauth.authorization_server import AuthorizationServer

HERE = "https://memory.example"
CALLBACK = f"{HERE}/ui/sign-in/callback"
COOKIE = f"__Host-{NAME}"
LED_BACK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""The headers with which a browser follows a redirect of another site."""
TYPED = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}


@dataclass
class Browser:
    """A browser on another machine, and the authorization server."""

    http: httpx.AsyncClient
    elsewhere: httpx.AsyncClient
    server: AuthorizationServer

    async def begin(self, **parameters: str) -> str:
        """Begins a sign-in, and returns the address to which the authorization server leads back."""
        begun = await self.http.get("/ui/sign-in/start", params=parameters, headers=TYPED)
        assert begun.status_code == 303, begun.text
        approved = await self.elsewhere.get(begun.headers["location"])
        assert approved.status_code == 302, approved.text
        return approved.headers["location"]

    async def come_back(self, address: str) -> httpx.Response:
        return await self.http.get(address, headers=LED_BACK)

    async def sign_in(self, **parameters: str) -> httpx.Response:
        return await self.come_back(await self.begin(**parameters))

    async def refused(self, **parameters: str) -> str:
        """Signs in in vain, and returns the words of the page that says so."""
        answer = await self.sign_in(**parameters)
        assert answer.status_code == 401, answer.text
        assert '<input type="password" name="key"' in answer.text
        assert COOKIE not in self.http.cookies
        assert PENDING_COOKIE not in self.http.cookies
        return words(answer)


def words(answer: httpx.Response) -> str:
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", answer.text)).split())


def leads_to(answer: httpx.Response) -> str:
    found = re.search(r'<meta http-equiv="refresh" content="0; url=([^"]+)">', answer.text)
    assert answer.status_code == 200, answer.text
    assert found, answer.text
    return unescape(found[1])


Opening = Callable[..., Any]


@pytest.fixture
def browser(services: Services, new_user: str) -> Opening:
    """Opens a browser without a key; `method`: how the page's client authenticates at the authorization server."""

    @asynccontextmanager
    async def opened(method: str = "none", **oauth: Any) -> AsyncIterator[Browser]:
        async with (
            AuthorizationServer(path="/realms/one", scope_prefix="memory:").running() as server,
            httpx.AsyncClient(trust_env=False) as elsewhere,
        ):
            server.user = new_user
            asked = {"redirect_uris": [CALLBACK], "token_endpoint_auth_method": method}
            client = (await elsewhere.post(server.issuer + "/register", json=asked)).json()
            given = {"issuer": server.issuer, "resource": HERE, "scope_prefix": "memory:"}
            given |= {"client_id": client["client_id"], "client_secret": client.get("client_secret", "")} | oauth
            settings = Settings.model_validate(
                {"data_dir": services.settings.data_dir, "host": "0.0.0.0", "oauth": given}
            )
            tokens = Tokens.of(settings.oauth, settings.limits, Egress())
            sign_in = OAuthSignIn.of(settings.oauth, Egress()) if settings.oauth.client_id else None
            app = create_app(replace(services, settings=settings, tokens=tokens, sign_in=sign_in))
            try:
                async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=HERE) as http:
                    yield Browser(http, elsewhere, server)
            finally:
                if sign_in is not None:
                    await sign_in.close()
                await tokens.close()

    return opened


@pytest.mark.slow
@pytest.mark.parametrize("method", ["none", "client_secret_basic", "client_secret_post"])
async def test_a_browser_signs_in(browser: Opening, new_user: str, method: str) -> None:
    async with browser(method) as it:
        it.server.metadata = {"token_endpoint_auth_methods_supported": [method]}
        shown = await it.http.get("/ui/apps", params={"sort": "memories"})
        assert shown.status_code == 401
        assert f"Sign in with {urlsplit(it.server.issuer).netloc}" in words(shown)
        start = re.search(r'href="\./(sign-in/start[^"]*)"', shown.text)
        assert start
        [to] = parse_qs(urlsplit(unescape(start[1])).query)["next"]
        address = await it.begin(next=to)
        answer = await it.come_back(address)
        assert leads_to(answer) == "../apps?sort=memories"
        page = await it.http.get("/ui/apps", headers={"Sec-Fetch-Site": "same-origin"})
        assert page.status_code == 200  # as the user themself, although the token names a client
        assert new_user in words(page)
        assert "Sign out" in words(page)


async def test_what_is_asked_of_the_authorization_server(browser: Opening) -> None:
    async with browser(admins=["root"]) as it:
        begun = await it.http.get("/ui/sign-in/start", headers=TYPED)
        asked = {name: each for name, [each] in parse_qs(urlsplit(begun.headers["location"]).query).items()}
        cookie = begun.headers["set-cookie"].lower()
        assert {"httponly", "secure", "samesite=lax", "max-age=600"} <= set(cookie.split("; "))
        kept = it.http.cookies[PENDING_COOKIE]
        assert asked["state"] not in kept  # it is encoded
        assert len(asked.pop("state")) == len(asked.pop("code_challenge")) == 43
        assert asked == {
            "response_type": "code", "client_id": next(iter(it.server.clients)), "redirect_uri": CALLBACK,
            "scope": "memory:read memory:write memory:admin", "code_challenge_method": "S256", "resource": HERE,
        }  # fmt: skip


async def test_the_cookie_ends_with_the_token(browser: Opening) -> None:
    async with browser(leeway=0) as it:
        it.server.lifetime = 100
        answer = await it.sign_in()
        cookies = dict(each.split("=", 1) for each in answer.headers.get_list("set-cookie"))
        assert re.search(r"; Max-Age=(9[89]|100);", cookies[COOKIE])
        assert {"httponly", "samesite=strict", "secure"} <= set(cookies[COOKIE].lower().split("; "))
        assert "Max-Age=0" in cookies[PENDING_COOKIE]


@pytest.mark.slow
async def test_a_token_that_has_ended_asks_again(browser: Opening, eventually: Callable[..., Any]) -> None:
    async with browser(leeway=0) as it:
        it.server.token_claims = {"exp": int(time.time()) + 3}
        leads_to(await it.sign_in())
        kept = {"Cookie": f"{COOKIE}={it.http.cookies[COOKIE]}"}

        async def ended() -> bool:
            return (await it.http.get("/ui/memories", headers=kept)).status_code == 401

        await eventually(ended)
        shown = await it.http.get("/ui/memories", headers=kept)
        assert "Sign in with" in words(shown)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("claims", "told"),
    [
        ({"exp": 1}, "exp: the token has expired"),
        ({"aud": "https://other.example"}, "aud: the token is for another service"),
        ({"iss": "https://other.example"}, "iss: the token is of another issuer"),
        ({"sub": " "}, "sub: must be a string that is not blank"),
    ],
)  # fmt: skip
async def test_a_token_that_requests_may_not_carry_signs_nobody_in(
    browser: Opening, claims: dict[str, Any], told: str
) -> None:
    async with browser() as it:
        it.server.token_claims = claims
        assert told in await it.refused()


async def test_a_denial_is_told_in_the_words_of_the_authorization_server(browser: Opening) -> None:
    async with browser() as it:
        it.server.denies = True
        answer = await it.sign_in()
        assert "refused the sign-in: access_denied: the user said &lt;no&gt;" in answer.text


async def test_the_answer_counts_only_for_the_sign_in_that_asked(browser: Opening) -> None:
    async with browser() as it:
        first = await it.begin()
        second = await it.begin()
        answer = await it.come_back(first)
        assert (answer.status_code, COOKIE in it.http.cookies) == (401, False)
        assert "The answer belongs to another sign-in (state)." in words(answer)
        again = await it.come_back(second)  # a wrong answer ended it
        assert "This sign-in was not begun in this browser at https://memory.example" in words(again)
        assert it.server.asked["/token"] == 0


async def test_the_answer_counts_only_in_the_browser_that_asked(browser: Opening) -> None:
    async with browser() as it:
        address = await it.begin()
        it.http.cookies.clear()
        for cookie in ("", "x", "W10=", "bnVsbA==", "WyIiLCIiLCIiXQ==", "WzEsMiwzXQ=="):
            answer = await it.http.get(address, headers=LED_BACK | {"Cookie": f"{PENDING_COOKIE}={cookie}"})
            assert answer.status_code == 401
            assert "was not begun in this browser" in words(answer)
        assert it.server.asked["/token"] == 0


async def test_a_code_counts_once(browser: Opening) -> None:
    async with browser() as it:
        address = await it.begin()
        kept = it.http.cookies[PENDING_COOKIE]
        leads_to(await it.come_back(address))
        assert (await it.come_back(address)).status_code == 401
        it.http.cookies.clear()
        stolen = await it.http.get(address, headers=LED_BACK | {"Cookie": f"{PENDING_COOKIE}={kept}"})
        assert "refused the sign-in: invalid_grant: the code is unknown, used, expired" in words(stolen)
        assert COOKIE not in it.http.cookies


async def test_a_code_of_another_sign_in_does_not_count(browser: Opening) -> None:
    async with browser() as it:
        [code] = parse_qs(urlsplit(await it.begin()).query)["code"]
        mine = await it.begin()
        [own] = parse_qs(urlsplit(mine).query)["code"]
        answer = await it.come_back(mine.replace(own, code))
        assert "invalid_grant: code_verifier does not fit the challenge" in words(answer)


@pytest.mark.parametrize("iss", ["", "&iss=https%3A%2F%2Fevil.example"])
async def test_the_answer_must_be_of_the_issuer(browser: Opening, iss: str) -> None:
    async with browser() as it:
        address = re.sub(r"&iss=[^&]*", iss, await it.begin())
        answer = await it.come_back(address)
        assert "The answer is of another authorization server (iss)." in words(answer)
        assert it.server.asked["/token"] == 0


async def test_a_server_that_does_not_name_itself_in_answers_is_taken(browser: Opening) -> None:
    async with browser() as it:
        it.server.metadata = {"authorization_response_iss_parameter_supported": False}
        leads_to(await it.come_back(re.sub(r"&iss=[^&]*", "", await it.begin())))


async def test_a_server_that_is_away_is_told(browser: Opening) -> None:
    async with browser() as it:
        it.server.down = True
        answer = await it.http.get("/ui/sign-in/start", headers=TYPED)
        assert answer.status_code == 503
        assert "is not possible now: no metadata of the issuer: 127.0.0.1: answered 503" in words(answer)
        assert '<input type="password" name="key"' in answer.text
        it.server.down = False
        address = await it.begin()
        it.server.down = True
        answer = await it.come_back(address)
        assert answer.status_code == 503
        assert "is not possible now: 127.0.0.1: answered 503" in words(answer)
        assert COOKIE not in it.http.cookies


async def test_a_wrong_secret_is_told(browser: Opening) -> None:
    async with browser("client_secret_basic", client_secret="wrong") as it:
        told = await it.refused()
        assert "refused the sign-in: invalid_client: unknown client or wrong secret" in told
        assert "Check oauth.client_id and oauth.client_secret." in told


@pytest.mark.slow
@pytest.mark.parametrize(
    "to",
    [
        "https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)", "../docs",
        "memories/../../docs", "/docs", "", "memories?" + "x" * 2_000, '"><script>',
    ],
)  # fmt: skip
async def test_the_next_page_is_one_of_ours(browser: Opening, to: str) -> None:
    async with browser() as it:
        assert leads_to(await it.sign_in(next=to)) == "../memories"


@pytest.mark.slow
@pytest.mark.parametrize("host", ["evil.example", "evil.example:443"])
async def test_the_host_header_does_not_decide_where_the_code_goes(browser: Opening, host: str) -> None:
    async with browser() as it:
        begun = await it.http.get("/ui/sign-in/start", headers=TYPED | {"Host": host})
        assert parse_qs(urlsplit(begun.headers["location"]).query)["redirect_uri"] == [CALLBACK]


async def test_another_site_begins_no_sign_in(browser: Opening) -> None:
    async with browser() as it:
        answer = await it.http.get("/ui/sign-in/start", headers=LED_BACK)
        assert (answer.status_code, answer.headers.get("set-cookie")) == (403, None)


async def test_without_a_client_id_only_keys_are_asked_for(browser: Opening) -> None:
    async with browser(client_id="", client_secret="") as it:
        assert "Sign in with" not in words(await it.http.get("/ui/memories"))
        for path in ("start", "callback"):
            answer = await it.http.get(f"/ui/sign-in/{path}", headers=TYPED)
            assert answer.status_code == 404
            assert "does not sign in at an authorization server" in words(answer)

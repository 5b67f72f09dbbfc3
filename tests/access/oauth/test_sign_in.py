"""The page as a client of an authorization server that answers in every way that it should not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from openmemory.access.oauth import issuer
from openmemory.access.oauth.issuer import Issuer
from openmemory.access.oauth.sign_in import METADATA_SECONDS, OAuthSignIn, PendingSignIn
from openmemory.config.settings import Settings
from openmemory.egress.clients import Egress
from openmemory.errors import Unauthenticated, Unavailable
from tests.index.serving import served

PENDING = PendingSignIn("the-state", "the-verifier")
ANSWER = {"state": "the-state", "code": "the-code"}


class Server:
    """An authorization server that answers what a test says. `metadata` changes its metadata; None leaves out."""

    def __init__(self) -> None:
        self.url = ""
        self.metadata: dict[str, Any] = {}
        self.fetched = 0
        self.token: Any = {"access_token": "the-token", "token_type": "bearer"}
        self.status = 200
        self.asked: dict[str, str] = {}
        self.elsewhere = False
        self.slow = asyncio.Event()
        self.slow.set()

    async def describe(self, _: Request) -> Response:
        self.fetched += 1
        found = {
            "issuer": self.url, "authorization_endpoint": self.url + "/authorize?tenant=1#here",
            "token_endpoint": self.url + "/token",
        } | self.metadata  # fmt: skip
        return JSONResponse({name: value for name, value in found.items() if value is not None})

    async def give(self, request: Request) -> Response:
        self.asked = {str(name): str(value) for name, value in (await request.form()).items()}
        await self.slow.wait()
        if self.elsewhere:
            return RedirectResponse(self.url + "/elsewhere", 303)
        if isinstance(self.token, str):
            return Response(self.token, self.status)
        return JSONResponse(self.token, self.status)

    async def stray(self, _: Request) -> Response:
        return JSONResponse({"access_token": "of-elsewhere", "token_type": "bearer"})


@asynccontextmanager
async def signing_in(clock: Any = None) -> AsyncIterator[tuple[Server, OAuthSignIn]]:
    server = Server()
    routes = [
        Route("/.well-known/oauth-authorization-server", server.describe),
        Route("/token", server.give, methods=["POST"]),
        Route("/elsewhere", server.stray),
    ]
    async with served(Starlette(routes=routes)) as url:
        server.url = url
        given = {"issuer": url, "resource": "https://memory.example", "client_id": "page"}
        oauth = Settings.model_validate({"oauth": given}).oauth
        sign_in = OAuthSignIn(oauth, Issuer(oauth, Egress()), **({"clock": clock} if clock else {}))
        try:
            yield server, sign_in
        finally:
            server.slow.set()
            await sign_in.close()


async def test_the_address_keeps_the_query_of_the_endpoint() -> None:
    async with signing_in() as (_, sign_in):
        url, pending = await sign_in.authorization_url()
        asked = parse_qs(urlsplit(url).query)
        assert (asked["tenant"], asked["state"]) == (["1"], [pending.state])
        assert "#" not in url
        assert pending.state != (await sign_in.authorization_url())[1].state
        assert pending.verifier not in url
        assert pending.verifier not in repr(pending)


async def test_a_code_becomes_a_token() -> None:
    async with signing_in() as (server, sign_in):
        assert await sign_in.fetch_token(PENDING, ANSWER) == "the-token"
        assert server.asked == {
            "grant_type": "authorization_code", "code": "the-code", "client_id": "page",
            "code_verifier": "the-verifier", "redirect_uri": "https://memory.example/ui/sign-in/callback",
            "resource": "https://memory.example",
        }  # fmt: skip


async def test_metadata_is_fetched_once_in_a_while() -> None:
    now = 0.0
    async with signing_in(lambda: now) as (server, sign_in):
        for _ in range(3):
            await sign_in.authorization_url()
        assert server.fetched == 1
        now = METADATA_SECONDS
        await sign_in.authorization_url()
        assert server.fetched == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("metadata", "told"),
    [
        ({"issuer": "https://other.example"}, "the metadata must name the issuer"),
        ({"authorization_endpoint": None}, "the metadata has no authorization_endpoint"),
        ({"authorization_endpoint": 7}, "the metadata has no authorization_endpoint"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "must begin with http:// or https://"),
        ({"authorization_endpoint": "/authorize"}, "must begin with http:// or https://"),
        ({"code_challenge_methods_supported": ["plain"]}, "it does not support PKCE with S256"),
        ({"code_challenge_methods_supported": None}, None),
    ],
)
async def test_metadata_with_which_nobody_signs_in(metadata: dict[str, Any], told: str | None) -> None:
    async with signing_in() as (server, sign_in):
        server.metadata = metadata
        if told is None:
            await sign_in.authorization_url()
            return
        with pytest.raises(Unavailable, match=r"Signing in with 127\.0\.0\.1:[0-9]+ is not possible now: ") as found:
            await sign_in.authorization_url()
        assert told in found.value.message


@pytest.mark.parametrize(
    ("status", "token", "told"),
    [
        (200, {}, "holds no access token of the type Bearer"),
        (200, {"access_token": 7, "token_type": "bearer"}, "holds no access token of the type Bearer"),
        (200, {"access_token": "t", "token_type": "DPoP"}, "holds no access token of the type Bearer"),
        (400, {"error": "invalid_grant"}, "refused the sign-in: invalid_grant"),
        (400, {"error": 5, "error_description": ["x" * 9_000]}, "refused the sign-in: 5: ['xxx"),
        (401, {"error": "invalid_client"}, "refused the sign-in: invalid_client"),
    ],
)
async def test_no_token_is_a_refusal(status: int, token: dict[str, Any], told: str) -> None:
    async with signing_in() as (server, sign_in):
        server.status, server.token = status, token
        with pytest.raises(Unauthenticated) as found:
            await sign_in.fetch_token(PENDING, ANSWER)
        assert told in found.value.message
        assert len(found.value.message) < 500


@pytest.mark.parametrize(
    ("status", "token", "told"),
    [
        (500, {"error": "server_error"}, "answered 500"),
        (200, "no JSON", "the response must be JSON"),
        (200, "[]", "the response must be a JSON object"),
        (200, "x" * 1_100_000, "the response is larger than 1,000,000 bytes"),
    ],
)
async def test_an_answer_of_a_broken_server_is_told(status: int, token: Any, told: str) -> None:
    async with signing_in() as (server, sign_in):
        server.status, server.token = status, token
        with pytest.raises(Unavailable, match=told):
            await sign_in.fetch_token(PENDING, ANSWER)


async def test_the_code_follows_no_redirect() -> None:
    async with signing_in() as (server, sign_in):
        server.elsewhere = True
        with pytest.raises(Unavailable, match="answered 303"):
            await sign_in.fetch_token(PENDING, ANSWER)


async def test_the_code_goes_to_no_private_address_that_only_the_metadata_names() -> None:
    async with signing_in() as (server, sign_in):
        server.metadata = {"token_endpoint": "http://127.0.0.1:1/token"}
        with pytest.raises(Unavailable, match=r"127\.0\.0\.1:1: is a loopback address"):
            await sign_in.fetch_token(PENDING, ANSWER)


async def test_a_server_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    async with signing_in() as (server, sign_in):
        await sign_in.authorization_url()
        monkeypatch.setattr(issuer, "DEADLINE", 0.2)
        server.slow.clear()
        with pytest.raises(Unavailable, match=r"no answer within 0\.2 s"):
            await sign_in.fetch_token(PENDING, ANSWER)


async def test_a_server_that_is_gone_is_told() -> None:
    async with signing_in() as (_, sign_in):
        pass
    with pytest.raises(Unavailable, match="no metadata of the issuer"):
        await OAuthSignIn(sign_in._settings, Issuer(sign_in._settings, Egress())).authorization_url()


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        ({}, "another sign-in (state)"),
        ({"state": "", "code": "c"}, "another sign-in (state)"),
        ({"state": "thé-state", "code": "c"}, "another sign-in (state)"),
        ({"state": "the-state"}, "holds no code"),
        ({"state": "the-state", "code": ""}, "holds no code"),
        ({"state": "the-state", "error": "access_denied"}, "refused the sign-in: access_denied"),
        ({"state": "other", "error": "access_denied"}, "another sign-in (state)"),
    ],
)
async def test_an_answer_without_a_code_asks_for_no_token(answer: dict[str, str], told: str) -> None:
    async with signing_in() as (server, sign_in):
        with pytest.raises(Unauthenticated) as found:
            await sign_in.fetch_token(PENDING, answer)
        assert told in found.value.message
        assert not server.asked

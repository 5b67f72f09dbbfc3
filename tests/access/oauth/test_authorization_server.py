"""The tests' own authorization server: that it is as strict as what it stands for, and gets on with the MCP SDK."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from tests.access.oauth.authorization_server import AuthorizationServer

BACK = "http://127.0.0.1:9/back"
VERIFIER = "v" * 50
CHALLENGE = base64.urlsafe_b64encode(hashlib.sha256(VERIFIER.encode()).digest()).rstrip(b"=").decode()


@pytest.fixture(scope="module")
async def server() -> AsyncIterator[AuthorizationServer]:
    async with AuthorizationServer().running() as server:
        yield server


@pytest.fixture
async def http(server: AuthorizationServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=server.issuer, trust_env=False) as http:
        yield http


async def register(http: httpx.AsyncClient, **changes: Any) -> str:
    metadata = {
        "redirect_uris": [BACK], "token_endpoint_auth_method": "none",
        "grant_types": ["authorization_code", "refresh_token"],
    } | changes  # fmt: skip
    answer = await http.post("/register", json=metadata)
    assert answer.status_code == 201, answer.text
    client: str = answer.json()["client_id"]
    return client


def asked(client: str, **changes: Any) -> dict[str, Any]:
    good = {
        "client_id": client, "redirect_uri": BACK, "response_type": "code", "code_challenge": CHALLENGE,
        "code_challenge_method": "S256", "state": "s", "scope": "read", "resource": "https://memory.example.com",
    } | changes  # fmt: skip
    return {name: value for name, value in good.items() if value is not None}


async def sent_back(http: httpx.AsyncClient, client: str, **changes: Any) -> dict[str, str]:
    answer = await http.get("/authorize", params=asked(client, **changes))
    assert answer.status_code == 302, answer.text
    return {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}


async def code_of(http: httpx.AsyncClient, client: str, **changes: Any) -> str:
    return (await sent_back(http, client, **changes))["code"]


async def redeem(http: httpx.AsyncClient, client: str, code: str, **changes: Any) -> httpx.Response:
    form = {
        "grant_type": "authorization_code", "client_id": client, "code": code, "redirect_uri": BACK,
        "code_verifier": VERIFIER,
    } | changes  # fmt: skip
    return await http.post("/token", data=form)


async def test_a_code_becomes_a_token_for_the_resource_once(http: httpx.AsyncClient) -> None:
    client = await register(http)
    code = await code_of(http, client)
    first = await redeem(http, client, code)
    assert first.status_code == 200, first.text
    assert first.json()["scope"] == "read"
    again = await redeem(http, client, code)
    assert (again.status_code, again.json()["error"]) == (400, "invalid_grant")
    form = {"grant_type": "refresh_token", "client_id": client, "refresh_token": first.json()["refresh_token"]}
    assert (await http.post("/token", data=form)).json()["error"] == "invalid_grant", (
        "a code used twice ends its tokens"
    )


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_verifier": "w" * 50}, "invalid_grant"),
        ({"redirect_uri": "http://127.0.0.1:9/other"}, "invalid_grant"),
        ({"resource": "https://other.example.com"}, "invalid_target"),
        ({"grant_type": "password"}, "unauthorized_client"),
        ({"client_id": "nobody"}, "invalid_client"),
        ({"client_secret": "x"}, "invalid_client"),
    ],
)
async def test_a_code_is_redeemed_by_its_client_with_its_verifier_alone(
    http: httpx.AsyncClient, changes: dict[str, str], error: str
) -> None:
    client = await register(http)
    answer = await redeem(http, client, await code_of(http, client), **changes)
    assert answer.json()["error"] == error


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"code_challenge": None}, "invalid_request"),
        ({"code_challenge_method": "plain"}, "invalid_request"),
        ({"response_type": "token"}, "unsupported_response_type"),
        ({"scope": "everything"}, "invalid_scope"),
        ({"resource": "no-uri"}, "invalid_target"),
    ],
)
async def test_a_wrong_request_is_sent_back_with_its_state(
    http: httpx.AsyncClient, server: AuthorizationServer, changes: dict[str, Any], error: str
) -> None:
    back = await sent_back(http, await register(http), **changes)
    assert (back["error"], back["state"], back["iss"]) == (error, "s", server.issuer)


async def test_nobody_is_sent_to_an_address_that_was_not_registered(http: httpx.AsyncClient) -> None:
    answer = await http.get("/authorize", params=asked(await register(http), redirect_uri="https://evil.example"))
    assert answer.status_code == 400


async def test_refresh_tokens_rotate_and_may_ask_for_less_but_not_for_more(http: httpx.AsyncClient) -> None:
    client = await register(http)
    first = (await redeem(http, client, await code_of(http, client, scope="read write"))).json()
    form = {"grant_type": "refresh_token", "client_id": client, "refresh_token": first["refresh_token"]}
    assert (await http.post("/token", data=form | {"scope": "admin"})).json()["error"] == "invalid_scope"
    second = (await http.post("/token", data=form | {"scope": "read"})).json()
    assert second["scope"] == "read"
    assert (await http.post("/token", data=form)).json()["error"] == "invalid_grant", "used before"
    form["refresh_token"] = second["refresh_token"]
    assert (await http.post("/token", data=form)).json()["error"] == "invalid_grant", "and so the whole family ends"


@pytest.mark.parametrize("method", ["client_secret_post", "client_secret_basic"])
async def test_a_client_with_a_secret_must_show_it_as_it_registered(http: httpx.AsyncClient, method: str) -> None:
    answer = await http.post("/register", json={"redirect_uris": [BACK], "token_endpoint_auth_method": method})
    client, secret = answer.json()["client_id"], answer.json()["client_secret"]
    assert (await redeem(http, client, await code_of(http, client))).status_code == 401
    form = {"grant_type": "authorization_code", "redirect_uri": BACK, "code_verifier": VERIFIER}
    form["code"] = await code_of(http, client)
    if method == "client_secret_post":
        answer = await http.post("/token", data=form | {"client_id": client, "client_secret": secret})
    else:
        answer = await http.post("/token", data=form, auth=(client, secret))
    assert answer.status_code == 200, answer.text
    assert "refresh_token" not in answer.json(), "not registered for it"


@pytest.mark.parametrize(
    "metadata",
    [
        {"redirect_uris": []},
        {"redirect_uris": ["http://evil.example/x"]},
        {"redirect_uris": [BACK], "grant_types": ["implicit"]},
        {"redirect_uris": [BACK], "token_endpoint_auth_method": "tls_client_auth"},
        [],
    ],
)
async def test_a_registration_that_cannot_work_is_refused(http: httpx.AsyncClient, metadata: Any) -> None:
    answer = await http.post("/register", json=metadata)
    assert answer.status_code == 400
    assert answer.json()["error"].startswith("invalid_")

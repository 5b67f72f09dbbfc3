"""How a client learns where to get a token: metadata, the header of a refusal, and the MCP SDK that follows both."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
from mcp.client.auth import OAuthClientProvider
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send

from app.access.tokens import Tokens
from app.config import Settings
from app.egress.clients import Egress
from app.errors import Unauthenticated
from app.main import create_app
from app.rest.metadata import www_authenticate
from app.services import Services
from tests.access.authorization_server import AuthorizationServer
from tests.index.serving import served
from tests.rest.conftest import MakeClient

WELL_KNOWN = "/.well-known/oauth-protected-resource"
OAUTH = {"issuer": "https://as.example.com/realms/one", "resource": "https://memory.example.com"}


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("", ""), ("/", ""), ("/mcp", "/mcp"), ("/mcp/", "/mcp"), ("/mcp/sse", "/mcp/sse"),
        ("/mcp/claude/sse/alice", "/mcp/claude/sse/alice"), ("/mcp/a%20b/http/%C3%A9", "/mcp/a%20b/http/%C3%A9"),
        ('/mcp/"x"', "/mcp/%22x%22"),
    ],
)  # fmt: skip
async def test_the_metadata_of_every_address_names_it_and_the_issuer(
    make_client: MakeClient, path: str, resource: str
) -> None:
    async with make_client(oauth=OAUTH) as http:
        answer = await http.get(WELL_KNOWN + path)
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {
        "resource": "https://memory.example.com" + resource,
        "authorization_servers": ["https://as.example.com/realms/one"],
        "scopes_supported": ["read", "write"],
        "bearer_methods_supported": ["header"],
        "resource_name": "OpenMemory",
    }


async def test_scopes_carry_the_prefix_and_admin_is_there_for_administrators(make_client: MakeClient) -> None:
    async with make_client(oauth=OAUTH | {"scope_prefix": "memory:", "admins": ["root"]}) as http:
        answer = await http.get(WELL_KNOWN)
    assert answer.json()["scopes_supported"] == ["memory:read", "memory:write", "memory:admin"]


@pytest.mark.parametrize("path", ["", "/mcp", "/team/memory/mcp"])
async def test_without_oauth_there_is_no_metadata(client: httpx.AsyncClient, path: str) -> None:
    answer = await client.get(WELL_KNOWN + path)
    assert (answer.status_code, answer.json()["error"]) == (404, "oauth_off")


@pytest.mark.parametrize("asked", ["/team/memory/mcp", "/mcp"])
async def test_a_base_with_a_path_is_found_behind_a_proxy_that_cuts_it_and_one_that_does_not(
    make_client: MakeClient, asked: str
) -> None:
    async with make_client(oauth=OAUTH | {"resource": "https://example.com/team/memory"}) as http:
        answer = await http.get(WELL_KNOWN + asked)
    assert answer.json()["resource"] == "https://example.com/team/memory/mcp"


@pytest.mark.parametrize(
    ("oauth", "said", "header"),
    [
        ({}, {"error": None, "scope": None, "path": "/mcp"}, 'Bearer realm="openmemory"'),
        (
            {},
            {"error": "invalid_token", "scope": "read", "path": "/mcp"},
            'Bearer realm="openmemory", error="invalid_token"',
        ),
        (
            OAUTH,
            {"error": None, "scope": None, "path": "/mcp"},
            'Bearer realm="openmemory", '
            'resource_metadata="https://memory.example.com/.well-known/oauth-protected-resource/mcp"',
        ),
        (
            OAUTH | {"scope_prefix": "memory:"},
            {"error": "insufficient_scope", "scope": "read write", "path": "/", "description": 'a "b"\r\n\\ é'},
            'Bearer realm="openmemory", '
            'resource_metadata="https://memory.example.com/.well-known/oauth-protected-resource", '
            "error=\"insufficient_scope\", error_description=\"a 'b'''' '\", scope=\"memory:read memory:write\"",
        ),
        (
            OAUTH | {"resource": "https://example.com/team/memory"},
            {"error": None, "scope": None, "path": '/mcp/"\r\nX: y/é'},
            'Bearer realm="openmemory", resource_metadata="https://example.com/.well-known/oauth-protected-resource'
            '/team/memory/mcp/%22%0D%0AX:%20y/%C3%A9"',
        ),
    ],
)
def test_a_refusal_says_where_to_get_a_token(oauth: dict[str, Any], said: dict[str, Any], header: str) -> None:
    assert www_authenticate(Settings.model_validate({"oauth": oauth}), **said) == header


class Storage:
    """What the SDK remembers of a flow."""

    def __init__(self) -> None:
        self.tokens: OAuthToken | None = None
        self.client: OAuthClientInformationFull | None = None

    async def get_tokens(self) -> OAuthToken | None:
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.client = client_info


@asynccontextmanager
async def resource(services: Services, server: AuthorizationServer) -> AsyncIterator[str]:
    """The product's metadata and verification over TCP, beside an endpoint that says who asked."""
    parts: dict[str, Any] = {}

    async def who(request: Request) -> Response:
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        try:
            claims = await parts["tokens"].verify(token)
        except Unauthenticated as error:
            header = www_authenticate(
                parts["settings"], error=error.code if token else None, scope="read", path=request.url.path
            )
            return Response(status_code=401, headers={"WWW-Authenticate": header})
        return JSONResponse({"user": claims.user, "app": claims.app, "scopes": sorted(claims.scopes)})

    async def product(scope: Scope, receive: Receive, send: Send) -> None:
        await parts["app"](scope, receive, send)

    async with served(Starlette(routes=[Route("/mcp", who, methods=["POST"]), Mount("/", product)])) as url:
        settings = Settings.model_validate(
            {
                "data_dir": services.settings.data_dir,
                "oauth": {"issuer": server.issuer, "resource": url, "scope_prefix": "memory:"},
            }
        )
        tokens = Tokens.of(settings.oauth, settings.limits, Egress())
        parts |= {"settings": settings, "tokens": tokens, "app": create_app(replace(services, settings=settings))}
        try:
            yield url
        finally:
            await tokens.close()


async def test_the_client_of_the_mcp_sdk_finds_its_way_to_a_token(services: Services) -> None:
    """Refusal, metadata of the resource, metadata of the server, registration, PKCE, token, and refresh."""
    storage, redirected = Storage(), []

    async def open_page(url: str) -> None:
        redirected.append(url)

    async def come_back() -> AuthorizationCodeResult:
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(redirected[-1])
        back = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
        return AuthorizationCodeResult(code=back["code"], state=back["state"], iss=back["iss"])

    async with (
        AuthorizationServer(path="/realms/one", scope_prefix="memory:").running() as server,
        resource(services, server) as url,
    ):
        provider = OAuthClientProvider(
            f"{url}/mcp",
            OAuthClientMetadata(
                redirect_uris=[AnyUrl("http://127.0.0.1:9/back")],
                client_name="an assistant",
                token_endpoint_auth_method="none",
            ),
            storage,
            open_page,
            come_back,
        )
        async with httpx2.AsyncClient(auth=provider, trust_env=False) as http:
            first = await http.post(f"{url}/mcp", json={})
            assert first.status_code == 200, first.text
            assert storage.client is not None
            assert first.json() == {"user": "alice", "app": storage.client.client_id, "scopes": ["read"]}
            assert parse_qs(urlsplit(redirected[0]).query)["resource"] == [f"{url}/mcp"]
            assert (await http.post(f"{url}/mcp", json={})).status_code == 200
            assert (server.asked["/token"], len(redirected)) == (1, 1)

            provider.context.token_expiry_time = 1.0
            assert (await http.post(f"{url}/mcp", json={})).status_code == 200
            assert (server.asked["/token"], len(redirected)) == (2, 1), "refreshed without asking the user"

"""Tokens of an authorization server open the product, and the MCP SDK's own client finds its way to one."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import httpx2
import pytest
from mcp import Client
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientInformationFull, OAuthClientMetadata, OAuthToken
from pydantic import AnyUrl
from sqlalchemy import text

from openmemory.access.oauth.tokens import Tokens
from openmemory.access.schemas import KeyCreate
from openmemory.config.settings import Settings
from openmemory.egress.clients import Egress
from openmemory.identity.principal import LOCAL
from openmemory.memories.schemas import MemoryQuery
from openmemory.services import Services
from tests.access.oauth.authorization_server import AuthorizationServer
from tests.doors.mcp.conftest import serving
from tests.doors.mcp.streams import Stream, stream_of, tool
from tests.minute import early_in_a_minute

MEMORIES = "/api/v1/memories"


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


@dataclass(frozen=True)
class Protected:
    """The product over TCP, and the server whose tokens it takes."""

    url: str
    server: AuthorizationServer
    services: Services

    async def get(self, path: str, token: str | None, **params: Any) -> httpx.Response:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as http:
            return await http.get(path, headers=headers, params=params)

    async def post(self, path: str, token: str, body: Any) -> httpx.Response:
        async with httpx.AsyncClient(base_url=self.url, trust_env=False) as http:
            return await http.post(path, headers={"Authorization": f"Bearer {token}"}, json=body)


@asynccontextmanager
async def protected(services: Services, user: str, **oauth: Any) -> AsyncIterator[Protected]:
    async with AuthorizationServer(path="/realms/one", scope_prefix="memory:").running() as server:
        server.user = user
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            given = {"issuer": server.issuer, "resource": url, "scope_prefix": "memory:"} | oauth
            settings = Settings.model_validate({"data_dir": services.settings.data_dir, "oauth": given})
            tokens = Tokens.of(settings.oauth, settings.limits, Egress())
            try:
                async with serving(replace(services, settings=settings, tokens=tokens), listening):
                    yield Protected(url, server, services)
            finally:
                await tokens.close()


def token_of(product: Protected, user: str, **claims: Any) -> str:
    scope = claims.pop("scope", "memory:read memory:write")
    return product.server.issue(sub=user, aud=product.url, scope=scope, **claims)


async def test_the_client_of_the_mcp_sdk_finds_its_way_to_a_token(services, new_user):
    """Refusal, metadata of the resource, metadata of the server, registration, PKCE, token, tools, and refresh."""
    storage, redirected = Storage(), []

    async def open_page(url: str) -> None:
        redirected.append(url)

    async def come_back() -> AuthorizationCodeResult:
        async with httpx.AsyncClient(trust_env=False) as http:
            answer = await http.get(redirected[-1])
        back = {name: values[0] for name, values in parse_qs(urlsplit(answer.headers["location"]).query).items()}
        return AuthorizationCodeResult(code=back["code"], state=back["state"], iss=back["iss"])

    async with protected(services, new_user) as product:
        about = OAuthClientMetadata(
            redirect_uris=[AnyUrl("http://127.0.0.1:9/back")],
            client_name="an assistant",
            token_endpoint_auth_method="none",
        )
        provider = OAuthClientProvider(f"{product.url}/mcp", about, storage, open_page, come_back)
        async with httpx2.AsyncClient(auth=provider, trust_env=False) as http:
            transport = streamable_http_client(f"{product.url}/mcp", http_client=http)
            async with Client(transport, mode="legacy", read_timeout_seconds=30) as client:
                added = await client.call_tool("add_memories", {"text": "I sail.", "infer": False})
                assert not added.is_error, added
                assert (product.server.asked["/token"], len(redirected)) == (1, 1)
                provider.context.token_expiry_time = 1.0
                found = await client.call_tool("search_memory", {"query": "sailing"})
                assert "I sail." in found.content[0].text
        assert (product.server.asked["/token"], len(redirected)) == (2, 1), "refreshed without asking the user"
        assert parse_qs(urlsplit(redirected[0]).query)["resource"] == [f"{product.url}/mcp"]
    owner = await services.directory.caller(new_user, None, owner=True)
    page = await services.memories.list(owner, MemoryQuery())
    assert [(item.content, item.app_name) for item in page.items] == [("I sail.", storage.client.client_id)]


async def test_a_token_speaks_for_its_user_as_its_client(services, new_user):
    async with protected(services, new_user) as product:
        token = token_of(product, new_user, client_id="cursor")
        body = {"user_id": new_user, "text": "I sail.", "infer": False}
        assert (await product.post(MEMORIES, token, body)).status_code == 200
        listed = (await product.get(MEMORIES, token, user_id=new_user)).json()["items"]
        assert [item["app_name"] for item in listed] == ["cursor"]
        other = await product.get(MEMORIES, token, user_id="somebody")
        assert (other.status_code, other.json()["error"]) == (403, "user_not_allowed")
        as_claude = await product.post(f"/mcp/claude/http/{new_user}", token, {})
        assert (as_claude.status_code, as_claude.json()["error"]) == (403, "app_not_allowed")
        rules = await product.get("/api/v1/grants", token, user_id=new_user)
        assert rules.json()["error"] == "owner_only"


async def test_a_client_that_is_listed_speaks_as_the_user_themself(services, new_user):
    async with protected(services, new_user, owner_clients=["page"]) as product:
        token = token_of(product, new_user, client_id="page")
        assert (await product.get("/api/v1/grants", token, user_id=new_user)).status_code == 200


async def test_a_refusal_says_where_to_get_a_token_and_for_what(services, new_user):
    async with protected(services, new_user) as product:
        bare = await product.get("/mcp/sse", None)
        metadata = f'resource_metadata="{product.url}/.well-known/oauth-protected-resource/mcp/sse"'
        assert bare.status_code == 401
        assert metadata in bare.headers["www-authenticate"]
        assert "error=" not in bare.headers["www-authenticate"]
        expired = await product.get("/mcp/sse", token_of(product, new_user, exp=1))
        assert expired.json()["error"] == "invalid_token"
        assert 'error="invalid_token"' in expired.headers["www-authenticate"]
        reads = token_of(product, new_user, scope="memory:read")
        refused = await product.post(MEMORIES, reads, {"user_id": new_user, "text": "I sail."})
        assert (refused.status_code, refused.json()["error"]) == (403, "insufficient_scope")
        assert 'error="insufficient_scope"' in refused.headers["www-authenticate"]
        assert 'scope="memory:write"' in refused.headers["www-authenticate"]
        described = await product.get("/.well-known/oauth-protected-resource/mcp", None)
        assert described.json()["authorization_servers"] == [product.server.issuer]


async def test_administration_by_token_is_for_the_users_that_the_settings_name(services, new_user):
    async with protected(services, new_user, admins=[new_user]) as product:
        scope = "memory:read memory:write memory:admin"
        admin = token_of(product, new_user, scope=scope)
        assert (await product.get("/api/v1/keys", admin)).status_code == 200
        other = token_of(product, f"{new_user}-other", scope=scope)
        assert (await product.get("/api/v1/keys", other)).status_code == 403


async def test_keys_and_tokens_open_the_same_door(services, new_user):
    made = await services.keys.create(LOCAL, KeyCreate(name="k", user_id=new_user))
    async with protected(services, new_user) as product:
        assert (await product.get(MEMORIES, made.key, user_id=new_user)).status_code == 200


async def test_an_sse_session_ends_for_another_token_of_the_same_client_of_another_user(services, new_user):
    async with protected(services, new_user) as product:
        mine, theirs = token_of(product, new_user), token_of(product, f"{new_user}-other")
        async with httpx.AsyncClient(base_url=product.url, trust_env=False, timeout=20) as http:
            http.headers["Authorization"] = f"Bearer {mine}"
            async with stream_of(http, "/mcp/sse") as stream:
                again = token_of(product, new_user)  # as after a refresh
                message = {"jsonrpc": "2.0", "method": "notifications/initialized"}
                assert (await product.post(stream.messages, again, message)).status_code == 202
                assert (await product.post(stream.messages, theirs, message)).status_code == 404


@pytest.mark.slow
async def test_a_token_is_let_in_although_others_of_its_address_sent_wrong_ones(services, new_user):
    async with protected(services, new_user) as product:
        await early_in_a_minute()
        for _ in range(25):
            refused = await product.get(MEMORIES, token_of(product, new_user, exp=1), user_id=new_user)
        assert (refused.status_code, refused.json()["error"]) == (429, "too_many_requests")
        token = token_of(product, new_user)
        body = {"user_id": new_user, "text": "I sail.", "infer": False}
        assert (await product.post(MEMORIES, token, body)).status_code == 200
        assert (await product.get(MEMORIES, token, user_id=new_user)).json()["total"] == 1
    async with services.database.statement() as tx:
        # Other tests send wrong ones from this machine too.
        await tx.execute(text("DELETE FROM rate_limits WHERE bucket = 'failure:127.0.0.1'"))


async def _ended(stream: Stream, message: dict[str, Any]) -> bool:
    return (await stream.post(message)).status_code == 401


@pytest.mark.slow
async def test_a_session_that_stands_for_a_token_ends_with_it(services, new_user, eventually):
    async with protected(services, new_user, leeway=0) as product:
        short = token_of(product, new_user, exp=int(time.time()) + 3)
        async with (
            httpx.AsyncClient(base_url=product.url, trust_env=False, timeout=20) as http,
            stream_of(http, f"/mcp/sse?key={short}") as stream,
        ):
            message = {"method": "notifications/initialized"}
            assert (await stream.post(message)).status_code == 202
            await eventually(lambda: _ended(stream, message))


async def test_a_message_has_the_rights_of_the_token_that_it_comes_with(services, new_user):
    async with protected(services, new_user) as product:
        whole, reads = token_of(product, new_user), token_of(product, new_user, scope="memory:read")
        async with httpx.AsyncClient(base_url=product.url, trust_env=False, timeout=20) as http:
            http.headers["Authorization"] = f"Bearer {whole}"
            async with stream_of(http, "/mcp/sse") as stream:
                await stream.shake_hands()
                http.headers["Authorization"] = f"Bearer {reads}"
                refused = await stream.answer(tool("add_memories", text="I sail.", infer=False))
                assert "needs the scope write" in str(refused)

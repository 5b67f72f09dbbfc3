"""How a client learns where to get a token: metadata, and the header of a refusal."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from openmemory.config.settings import Settings
from openmemory.doors.rest.http.challenge import www_authenticate
from tests.doors.rest.conftest import MakeClient

WELL_KNOWN = "/.well-known/oauth-protected-resource"
OAUTH = {"issuer": "https://as.example.com/realms/one", "resource": "https://memory.example.com"}


@pytest.mark.parametrize(
    ("path", "resource"),
    [
        ("", ""), ("/", ""), ("/mcp", "/mcp"), ("/mcp/", "/mcp"), ("/mcp/sse", "/mcp/sse"),
        ("/mcp/claude/sse/alice", "/mcp/claude/sse/alice"), ("/mcp/a%20b/http/%C3%A9", "/mcp/a%20b/http/%C3%A9"),
        ('/mcp/"x"/sse/y', "/mcp/%22x%22/sse/y"), ("/mcp/a/sse/b/messages", "/mcp/a/sse/b/messages"),
        ("/mcp/elsewhere", ""), ("/key/wrong/mcp", ""), ("/mcp/key/sse/wrong", ""), ("/api/v1/memories/wrong", ""),
    ],
)  # fmt: skip
async def test_the_metadata_of_every_address_of_mcp_names_it_and_the_issuer(
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
        refused = await http.get(asked)
    assert answer.json()["resource"] == "https://example.com/team/memory/mcp"
    assert '/.well-known/oauth-protected-resource/team/memory/mcp"' in refused.headers["www-authenticate"]


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
            {"error": None, "scope": None, "path": '/mcp/"\r\nX: y/http/é'},
            'Bearer realm="openmemory", resource_metadata="https://example.com/.well-known/oauth-protected-resource'
            '/team/memory/mcp/%22%0D%0AX:%20y/http/%C3%A9"',
        ),
        (
            OAUTH,
            {"error": None, "scope": None, "path": "/elsewhere/secret"},
            'Bearer realm="openmemory", '
            'resource_metadata="https://memory.example.com/.well-known/oauth-protected-resource"',
        ),
    ],
)
def test_a_refusal_says_where_to_get_a_token(oauth: dict[str, Any], said: dict[str, Any], header: str) -> None:
    assert www_authenticate(Settings.model_validate({"oauth": oauth}), **said) == header

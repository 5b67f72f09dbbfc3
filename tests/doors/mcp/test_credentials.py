"""MCP sessions belong to the credential that opened them, whichever process gets their messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from sqlalchemy import text

from openmemory.access import keys as keys_module
from openmemory.access.keys import ApiKeys
from openmemory.access.schemas import KeyCreate, KeyCreated
from openmemory.config.settings import Settings
from openmemory.doors.mcp.transport import endpoints
from openmemory.identity.principal import LOCAL
from openmemory.services import Services, open_services
from openmemory.stores import open_stores
from tests.clusters import furnish
from tests.doors.mcp.conftest import ACCEPT, serving
from tests.doors.mcp.streams import Stream, stream_of, tool
from tests.minute import early_in_a_minute

ALWAYS = {"require": "always"}


@dataclass(frozen=True)
class Locked:
    """Two applications over one PostgreSQL that ask for a credential; sessions are opened at the first."""

    here: httpx.AsyncClient
    there: httpx.AsyncClient
    services: Services

    async def key(self, **about: Any) -> KeyCreated:
        return await self.services.keys.create(LOCAL, KeyCreate.model_validate({"name": "test"} | about))

    async def post(self, where: str, stream: Stream, key: KeyCreated | None, **message: Any) -> int:
        http = self.here if where == "here" else self.there
        headers = {} if key is None else {"Authorization": f"Bearer {key.key}"}
        message = {"jsonrpc": "2.0"} | (message or {"method": "notifications/initialized"})
        return (await http.post(stream.messages, json=message, headers=headers)).status_code


@pytest.fixture(scope="module")
async def locked(short_folder: Path) -> AsyncIterator[Locked]:
    async with AsyncExitStack() as stack:
        settings = Settings.model_validate(
            {
                "data_dir": str(furnish(short_folder / "locked")),
                "access": ALWAYS,
                "limits": {"sessions": 3},
                "rates": {"requests": 150},
            }
        )
        _, stores = await stack.enter_async_context(open_stores(settings, workers=2))
        clients = []
        for name in ("here", "there"):
            own = replace(stores, folder=short_folder / f"locked-{name}")
            services = await stack.enter_async_context(open_services(settings, stores=own))
            url = await stack.enter_async_context(serving(services))
            http = httpx.AsyncClient(base_url=url, headers=ACCEPT, timeout=20)
            clients.append(await stack.enter_async_context(http))
        yield Locked(*clients, services)


@pytest.fixture
async def keys(locked: Locked, new_user: str) -> tuple[KeyCreated, KeyCreated]:
    """Two keys, of a user and of another."""
    return await locked.key(user_id=new_user), await locked.key(user_id=f"{new_user}-other")


WHERE = pytest.mark.parametrize("where", ["here", "there"])


@WHERE
async def test_a_session_that_was_opened_with_a_header_wants_it_with_every_message(locked, keys, where):
    mine, theirs = keys
    locked.here.headers["Authorization"] = f"Bearer {mine.key}"
    try:
        async with stream_of(locked.here, "/mcp/sse") as stream:
            del locked.here.headers["Authorization"]
            assert await locked.post(where, stream, None) == 404
            assert await locked.post(where, stream, theirs) == 404
            assert await locked.post(where, stream, mine) == 202
    finally:
        locked.here.headers.pop("Authorization", None)


@WHERE
async def test_an_old_client_sends_its_key_when_it_connects_alone(locked, keys, where, new_user):
    mine, theirs = keys
    async with stream_of(locked.here, f"/mcp/cursor/sse/{new_user}?key={mine.key}") as stream:
        assert "key" not in stream.messages.replace(new_user, "")
        assert await locked.post(where, stream, theirs) == 404
        assert await locked.post(where, stream, mine) == 202
        await stream.shake_hands()
        added = await stream.answer(tool("add_memories", text="I row.", infer=False, format="json"))
        assert "I row." in str(added)
    found = await locked.here.get("/api/v1/memories", params={"user_id": new_user}, headers={"X-API-Key": mine.key})
    assert [(item["content"], item["app_name"]) for item in found.json()["items"]] == [("I row.", "cursor")]


@pytest.mark.parametrize("transport", ["sse", "http"])
async def test_names_in_the_address_are_claims_that_the_key_must_allow(locked, new_user, transport):
    bound = await locked.key(user_id=new_user, app="claude")
    headers = {"Authorization": f"Bearer {bound.key}"}
    method = "GET" if transport == "sse" else "POST"
    for path, code in (
        (f"/mcp/claude/{transport}/somebody", "user_not_allowed"),
        (f"/mcp/cursor/{transport}/{new_user}", "app_not_allowed"),
    ):
        answer = await locked.here.request(method, path, headers=headers, json={})
        assert (answer.status_code, answer.json()["error"]) == (403, code)


async def test_an_address_without_names_means_the_keys_user_and_app(locked, new_user):
    bound = await locked.key(user_id=new_user, app="claude")
    headers = {"Authorization": f"Bearer {bound.key}"}
    call = {"jsonrpc": "2.0", "method": "tools/call"} | tool("add_memories", text="I row.", infer=False, format="json")
    answer = await locked.here.post("/mcp", json=call, headers=headers)
    assert answer.json()["result"]["structuredContent"]["results"][0]["event"] == "ADD", answer.text
    listed = await locked.here.get("/api/v1/memories", params={"user_id": new_user}, headers=headers)
    assert [item["app_name"] for item in listed.json()["items"]] == ["claude"]


async def test_a_scope_that_is_missing_is_told_to_the_assistant(locked, new_user):
    reads = await locked.key(user_id=new_user, scopes=["read"])
    call = {"jsonrpc": "2.0", "method": "tools/call"} | tool("add_memories", text="I row.", infer=False, format="json")
    answer = await locked.here.post("/mcp", json=call, headers={"X-API-Key": reads.key})
    result = answer.json()["result"]
    assert result["isError"] is True
    assert "needs the scope write" in result["content"][0]["text"]


@WHERE
async def test_a_session_ends_with_its_key(locked, keys, where, new_user, monkeypatch):
    mine, _ = keys
    async with stream_of(locked.here, f"/mcp/cursor/sse/{new_user}?key={mine.key}") as stream:
        assert await locked.post(where, stream, None) == 202
        await locked.services.keys.revoke(LOCAL, mine.id)
        monkeypatch.setattr(keys_module, "CACHE_SECONDS", 0.0)
        assert await locked.post(where, stream, None) in (401, 404)
        assert await locked.post(where, stream, mine) == 401


async def test_who_has_no_credential_and_no_session_is_refused_before_the_message_is_read(locked):
    answer = await locked.there.post(f"/mcp/messages/?session_id={uuid4().hex}", json=[0] * 100)
    assert (answer.status_code, answer.json()["error"]) == (404, "session_not_found")


async def test_a_key_has_only_so_many_sessions_at_once(locked, keys, new_user):
    mine, theirs = keys
    async with AsyncExitStack() as stack:
        for _ in range(3):
            await stack.enter_async_context(stream_of(locked.here, f"/mcp/cursor/sse/{new_user}?key={mine.key}"))
        refused = await locked.here.get("/mcp/sse", params={"key": mine.key})
        assert (refused.status_code, refused.json()["error"]) == (429, "too_many_sessions")
        assert "retry-after" in refused.headers
        await stack.enter_async_context(stream_of(locked.here, f"/mcp/sse?key={theirs.key}"))
    async with stream_of(locked.here, f"/mcp/sse?key={mine.key}"):
        pass


@pytest.mark.slow
@pytest.mark.parametrize("end", ["revoked", "rotated", "expired"])
async def test_a_stream_ends_with_its_key_wherever_the_key_was_ended(locked, new_user, monkeypatch, end):
    monkeypatch.setattr(endpoints, "LOOKED_EVERY", 0.05)
    key, other = [await locked.key(user_id=new_user) for _ in range(2)]
    async with (
        stream_of(locked.here, f"/mcp/sse?key={key.key}") as stream,
        stream_of(locked.there, f"/mcp/sse?key={key.key}") as elsewhere,
        stream_of(locked.here, f"/mcp/sse?key={other.key}") as stays,
    ):
        keys = ApiKeys(locked.services.database, locked.services.directory)  # as another process has them
        if end == "revoked":
            await keys.revoke(LOCAL, key.id)
        elif end == "rotated":
            await keys.rotate(LOCAL, key.id)
        else:
            async with locked.services.database.statement() as tx:
                await tx.execute(text("UPDATE api_keys SET expires_at = now() WHERE id = :id"), {"id": key.id})
        async with asyncio.timeout(30):
            await stream.ended()
            await elsewhere.ended()
        assert await locked.post("here", stays, other) == 202


async def test_clients_without_a_credential_have_only_so_many_sessions_at_once(services):
    limits = services.settings.limits.model_copy(update={"sessions": 2})
    few = replace(services, settings=services.settings.model_copy(update={"limits": limits}))
    async with (
        serving(few) as url,
        httpx.AsyncClient(base_url=url, headers=ACCEPT, timeout=20) as http,
        AsyncExitStack() as stack,
    ):
        for name in ("cursor", "claude"):
            await stack.enter_async_context(stream_of(http, f"/mcp/{name}/sse/somebody"))
        refused = await http.get("/mcp/sse")
        assert (refused.status_code, refused.json()["error"]) == (429, "too_many_sessions")
        assert "without a credential" in refused.json()["detail"]


@pytest.mark.slow
async def test_the_pace_of_an_assistant_is_told_in_words(locked, new_user):
    mine = await locked.key(user_id=new_user)
    await early_in_a_minute()
    for number in range(31):
        call = {"jsonrpc": "2.0", "method": "tools/call"} | tool("add_memories", text=f"Fact {number}.", infer=False)
        answer = await locked.here.post(f"/mcp/claude/http/{new_user}", json=call, headers={"X-API-Key": mine.key})
        result = answer.json()["result"]
        assert result.get("isError", False) is (number == 30)
    assert "at most 30 in 60 s (rates.saves)" in result["content"][0]["text"]


async def test_each_message_of_a_batch_counts_as_a_request(locked, keys):
    mine, theirs = keys
    batch = [{"jsonrpc": "2.0", "id": number, "method": "ping"} for number in range(100)]
    statuses = [
        (await locked.here.post("/mcp", json=batch, headers={"X-API-Key": key.key})).status_code
        for key in (mine, mine, theirs)
    ]
    assert statuses == [200, 429, 200]

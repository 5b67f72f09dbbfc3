"""The time zone of a tool call: its argument, the header of the client, or what the user saved."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from openmemory.identity.caller import Caller
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.mcp.streams import stream_of, tool

Ask = Callable[..., Awaitable[httpx.Response]]
NOW = "2026-05-03T01:00:00Z"


@pytest.fixture
async def user(services: Services, app_caller: Caller) -> str:
    """A user with a memory of half past one at night in Berlin, where it is the 3rd of May."""
    at = datetime(2026, 5, 2, 23, 30, tzinfo=UTC)
    new = MemoryCreate(text="The cat came home", created_at=at, valid_until=datetime(2026, 12, 31, 23, 30, tzinfo=UTC))
    await services.memories.add(app_caller, new)
    return app_caller.user


async def found(ask: Ask, user: str, headers: dict[str, str] | None = None, **arguments: Any) -> str:
    arguments = {"query": "what happened today?", "as_of": NOW, "format": "compact"} | arguments
    params = {"name": "search_memory", "arguments": arguments}
    answer = await ask("tools/call", params, path=f"/mcp/claude/http/{user}", headers=headers or {})
    return str(answer.json()["result"]["content"][0]["text"])


async def test_a_line_has_the_day_of_the_user(ask: Ask, user: str) -> None:
    berlin = await found(ask, user, {"X-Timezone": "Europe/Berlin"})
    assert re.search(r"^\w+ 2026-05-03 claude \[valid until 2027-01-01\]: The cat", berlin), berlin
    assert await found(ask, user, timezone="Europe/Berlin") == berlin
    assert " 2026-05-02 claude [valid until 2026-12-31]: The cat" in await found(ask, user, query="cat")
    listed = {"name": "list_memories", "arguments": {"format": "compact", "timezone": "Europe/Berlin"}}
    answer = await ask("tools/call", listed, path=f"/mcp/claude/http/{user}")
    assert " 2026-05-03 claude " in answer.text
    assert "ignored" not in answer.text


async def test_the_argument_comes_before_the_header_and_that_before_what_is_saved(
    ask: Ask, services: Services, user: str
) -> None:
    header = {"X-Timezone": "Europe/Berlin"}
    assert "2026-05-02 claude" in await found(ask, user, header, query="cat", timezone="America/Los_Angeles")
    await services.directory.save_timezone(await services.directory.existing(user), "Europe/Berlin")
    assert "2026-05-03 claude" in await found(ask, user, query="cat")
    assert "2026-05-02 claude" in await found(ask, user, {"X-Timezone": "UTC"}, query="cat")


async def test_what_is_no_time_zone_is_refused_in_words(ask: Ask, user: str) -> None:
    said = await found(ask, user, timezone="Berlin time")
    assert said.startswith("Error searching memory: timezone: must be the IANA name of a time zone")
    answer = await ask("tools/list", path=f"/mcp/claude/http/{user}", headers={"X-Timezone": "Mars/Phobos"})
    assert answer.status_code == 422
    assert answer.json()["detail"].startswith("X-Timezone: must be the IANA name")


async def test_a_session_keeps_the_time_zone_of_its_first_request(http: httpx.AsyncClient, user: str) -> None:
    call = tool("search_memory", query="cat", format="compact")
    async with stream_of(http, f"/mcp/claude/sse/{user}?timezone=Europe/Berlin") as stream:
        await stream.shake_hands()
        assert "2026-05-03 claude" in str(await stream.answer(call))
        assert "2026-05-02 claude" in str(await stream.answer(call, f"{stream.messages}&timezone=UTC"))

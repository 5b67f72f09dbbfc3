"""A credential that only reads leaves neither a user nor an app behind, and reads as a new one would."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from openmemory.access.schemas import GrantCreate, KeyCreate
from openmemory.identity.principal import LOCAL
from openmemory.memories.schemas import MemoryCreate
from openmemory.services import Services
from tests.doors.mcp.conftest import ACCEPT
from tests.doors.mcp.streams import stream_of, tool

Run = Callable[..., Awaitable[dict[str, Any]]]

CALLS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("search_memory", {"query": "figs"}),
    ("list_memories", {}),
    ("add_memories", {"text": "I like figs.", "infer": False}),
    ("update_memory", {"memory_id": "00000000-0000-0000-0000-000000000007", "text": "I like plums."}),
    ("delete_memories", {"memory_ids": ["00000000-0000-0000-0000-000000000007"]}),
    ("restore_memories", {"memory_ids": ["00000000-0000-0000-0000-000000000007"]}),
    ("delete_all_memories", {}),
    ("sync_vector_store", {}),
)


@pytest.fixture
def key(services: Services) -> Callable[..., Awaitable[dict[str, str]]]:
    """Makes a key that only reads, and returns the header that shows it."""

    async def make(**about: Any) -> dict[str, str]:
        new = KeyCreate.model_validate({"name": "reader", "scopes": ["read"]} | about)
        return {"Authorization": f"Bearer {(await services.keys.create(LOCAL, new)).key}"}

    return make


@pytest.fixture(params=["http", "sse"])
def run(request: pytest.FixtureRequest, url: str) -> Run:
    """Calls a tool with a key, for an app and a user that the address names."""

    async def call(
        headers: dict[str, str], app: str, user: str, name: str, arguments: dict[str, Any]
    ) -> dict[str, Any]:
        async with httpx.AsyncClient(base_url=url, headers=ACCEPT | headers, timeout=20) as http:
            path = f"/mcp/{app}/{request.param}/{user}"
            if request.param == "http":
                answer: dict[str, Any] = (
                    await http.post(path, json={"jsonrpc": "2.0"} | tool(name, **arguments))
                ).json()
            else:
                async with stream_of(http, path) as stream:
                    await stream.shake_hands()
                    answer = await stream.answer(tool(name, **arguments))
        result: dict[str, Any] = answer["result"]
        return result

    return call


async def names(services: Services, user: str) -> list[str | None]:
    """The user's name and those of their apps; nothing if there is no such user."""
    query = "SELECT a.name FROM users AS u LEFT JOIN apps AS a ON a.owner_id = u.id WHERE u.user_id = :user ORDER BY 1"
    async with services.database.statement() as tx:
        return list((await tx.scalars(text(query), {"user": user})).all())


async def test_naming_a_user_makes_none(services: Services, run: Run, key: Any, new_user: str) -> None:
    reader, there = await key(everyone=True), f"{new_user}-there"
    await services.directory.caller(there, "ghost")
    for name, arguments in CALLS:
        of_nobody = await run(reader, "ghost", new_user, name, arguments)
        of_an_empty_one = await run(reader, "ghost", there, name, arguments)
        assert of_nobody == of_an_empty_one, name
    assert await names(services, new_user) == []


async def test_naming_an_app_makes_none_and_reads_what_a_new_one_would(
    services: Services, run: Run, key: Any, new_user: str
) -> None:
    owner = await services.directory.caller(new_user, None, owner=True)
    claude = await services.directory.caller(new_user, "claude")
    shown = await services.memories.add(claude, MemoryCreate(text="I like figs."))
    hidden = await services.memories.add(claude, MemoryCreate(text="I hide figs."))
    rule = GrantCreate(effect="deny", object_type="memory", object=str(hidden.id))
    await services.grants.create(owner, rule)
    reader, before = await key(user_id=new_user), await names(services, new_user)
    for name, arguments in CALLS[:2]:
        found = (await run(reader, "ghost", new_user, name, arguments))["structuredContent"]
        found = found.get("results") or found["result"]
        assert [one["id"] for one in found] == [str(shown.id)], name
    refused = await run(reader, "ghost", new_user, *CALLS[2])
    assert refused["isError"] is True
    assert await names(services, new_user) == before
    log = (await services.memories.access_log(owner, shown.id)).logs
    assert {(line.access_type, line.app_id, line.app_name) for line in log} == {
        ("search", None, "ghost"), ("list", None, "ghost"),
    }  # fmt: skip
    # As soon as there is such an app it is that one.
    ghost = await services.directory.caller(new_user, "ghost")
    await services.apps.set_active(owner, ghost.app_id, False)
    assert (await run(reader, "ghost", new_user, "list_memories", {}))["structuredContent"]["total"] == 0


async def test_the_app_of_a_key_is_there_from_the_first_so_that_it_can_be_paused(
    services: Services, run: Run, key: Any, new_user: str
) -> None:
    reader = await key(user_id=new_user, app="cursor")
    claude = await services.directory.caller(new_user, "claude")
    await services.memories.add(claude, MemoryCreate(text="I like figs."))
    owner = await services.directory.caller(new_user, None, owner=True)
    [cursor] = (await services.apps.list(owner, name="cursor")).apps
    listed = await run(reader, "cursor", new_user, "list_memories", {})
    assert len(json.loads(listed["content"][0]["text"])) == 1
    await services.apps.set_active(owner, cursor.id, False)
    listed = await run(reader, "cursor", new_user, "list_memories", {})
    assert json.loads(listed["content"][0]["text"]) == []

"""Which app may read what: state, app, rules. A row of the contract is a case, and so is each way in which it failed
open or hid too much."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from uuid import uuid4

import httpx
import pytest

from tests.contract.openmemory.test_mcp_tools import called, failure, text

Rule = Callable[..., Awaitable[None]]
Seen = Callable[..., Awaitable[set[str]]]

A, B = "The alpaca eats hay", "The badger eats worms"


@pytest.fixture
async def memories(api: httpx.AsyncClient, new_user: str) -> dict[str, str]:
    """Two memories that claude wrote, and an app cursor that has written nothing; ids by text."""
    ids = {}
    for said in (A, B):
        answer = await called(api, f"/mcp/claude/http/{new_user}", "add_memories", {"text": said})
        ids[said] = json.loads(text(answer))["results"][0]["id"]
    await called(api, f"/mcp/cursor/http/{new_user}", "list_memories", {})
    return ids


@pytest.fixture
def rule(api: httpx.AsyncClient, new_user: str, memories: dict[str, str]) -> Rule:
    """Makes a rule for the app cursor: about one memory, or all of them."""

    async def make(effect: str, memory: str | None) -> None:
        about = {"object_type": "all"} if memory is None else {"object_type": "memory", "object": memories[memory]}
        body = {"user_id": new_user, "effect": effect, "app": "cursor"} | about
        answer = await api.post("/api/v1/grants", json=body)
        assert answer.status_code == 201, answer.text

    return make


@pytest.fixture
def seen(api: httpx.AsyncClient, new_user: str, memories: dict[str, str]) -> Seen:
    """What an app is shown, which is the same by a list and by a search."""

    async def look(client: str = "cursor") -> set[str]:
        path = f"/mcp/{client}/http/{new_user}"
        listed = json.loads(text(await called(api, path, "list_memories", {})))
        found = json.loads(text(await called(api, path, "search_memory", {"query": "which animal eats what"})))
        by_words = json.loads(text(await called(api, path, "search_memory", {"query": "alpaca badger eats"})))
        shown = {item["memory"] for item in listed}
        assert {item["memory"] for item in found["results"]} <= shown
        assert {item["memory"] for item in by_words["results"]} == shown
        return shown

    return look


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rules", "shown"),
    [
        ([], {A, B}),
        ([("allow", None)], {A, B}),
        ([("deny", None)], set()),
        ([("allow", A)], {A}),
        ([("allow", A), ("allow", B), ("deny", B)], {A}),
        ([("allow", A), ("deny", A)], set()),
        # OpenMemory hid everything where single memories were denied and none allowed.
        ([("deny", A)], {B}),
        # And where nothing was left, its search took that for no restriction at all and showed everything.
        ([("deny", A), ("deny", B)], set()),
    ],
)
async def test_rules_decide_what_an_app_is_shown(
    rule: Rule, seen: Seen, rules: list[tuple[str, str | None]], shown: set[str]
) -> None:
    for effect, memory in rules:
        await rule(effect, memory)
    assert await seen() == shown
    assert await seen("claude") == {A, B}, "the rules are cursor's"


async def test_any_app_of_a_user_reads_all_of_the_users_memories(seen: Seen) -> None:
    assert await seen("an-app-that-is-new") == {A, B}


@pytest.mark.parametrize("state", ["paused", "archived", "deleted"])
async def test_only_active_memories_are_shown(
    api: httpx.AsyncClient, new_user: str, memories: dict[str, str], seen: Seen, state: str
) -> None:
    body = {"user_id": new_user, "memory_ids": [memories[A]], "all_for_app": True, "state": state}
    assert (await api.post("/api/v1/memories/actions/pause", json=body)).status_code == 200
    assert await seen() == {B}
    assert await seen("claude") == {B}


async def test_an_app_that_is_paused_is_shown_nothing(
    api: httpx.AsyncClient, new_user: str, memories: dict[str, str], seen: Seen
) -> None:
    apps = (await api.get("/api/v1/apps/", params={"user_id": new_user})).json()["apps"]
    [app] = [app["id"] for app in apps if app["name"] == "cursor"]
    await api.put(f"/api/v1/apps/{app}", params={"user_id": new_user, "is_active": False})
    path = f"/mcp/cursor/http/{new_user}"
    for name, arguments in {"list_memories": {}, "search_memory": {"query": "alpaca"}}.items():
        result = await called(api, path, name, arguments)
        assert A not in json.dumps(result)
        assert B not in json.dumps(result)
    refused = await called(api, path, "add_memories", {"text": "More"})
    assert failure(refused) == "Error: App cursor is currently paused on OpenMemory. Cannot create new memories."
    assert await seen("claude") == {A, B}


async def test_what_an_app_may_not_read_it_may_not_delete(
    api: httpx.AsyncClient, new_user: str, memories: dict[str, str], rule: Rule, seen: Seen
) -> None:
    await rule("deny", A)
    path = f"/mcp/cursor/http/{new_user}"
    denied = await called(api, path, "delete_memories", {"memory_ids": [memories[A]]})
    assert failure(denied) == "Error: No accessible memories found with provided IDs"
    both = await called(api, path, "delete_memories", {"memory_ids": list(memories.values())})
    assert text(both) == "Successfully deleted 1 memories"
    assert await seen("claude") == {A}


async def test_the_user_themself_is_bound_by_no_rule(
    api: httpx.AsyncClient, new_user: str, memories: dict[str, str], rule: Rule
) -> None:
    await rule("deny", None)
    listed = await api.get("/api/v1/memories/", params={"user_id": new_user})
    assert {item["content"] for item in listed.json()["items"]} == {A, B}
    assert listed.json()["total"] == 2
    one = await api.get(f"/api/v1/memories/{memories[A]}", params={"user_id": new_user})
    assert one.json()["text"] == A


async def test_another_users_memories_do_not_exist(
    api: httpx.AsyncClient, new_user: str, memories: dict[str, str]
) -> None:
    other = f"{new_user}-2"
    path = f"/mcp/claude/http/{other}"
    assert json.loads(text(await called(api, path, "list_memories", {}))) == []
    denied = await called(api, path, "delete_memories", {"memory_ids": [memories[A]]})
    unknown = await called(api, path, "delete_memories", {"memory_ids": [str(uuid4())]})
    assert failure(denied) == failure(unknown)
    answer = await api.get(f"/api/v1/memories/{memories[A]}", params={"user_id": other})
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")

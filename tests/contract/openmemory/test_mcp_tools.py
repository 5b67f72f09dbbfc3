"""The five tools of OpenMemory: their arguments, texts and JSON, their errors, and what the logs say of them."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from tests.faults.outages import staged
from tests.faults.wire import Mode

Call = Callable[..., Awaitable[dict[str, Any]]]
ISO = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(\+00:00)?")
JSON = {"Accept": "application/json, text/event-stream"}


async def called(api: httpx.AsyncClient, path: str, name: str, arguments: dict[str, Any]) -> dict[str, Any]:
    message = {
        "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": name, "arguments": arguments}
    }  # fmt: skip
    answer = await api.post(path, json=message, headers=JSON)
    assert answer.status_code == 200, answer.text
    result: dict[str, Any] = answer.json()["result"]
    return result


@pytest.fixture
def call(api: httpx.AsyncClient, new_user: str) -> Call:
    """Calls a tool as an assistant of the test's user and returns the result."""

    async def run(name: str, client: str = "claude", **arguments: Any) -> dict[str, Any]:
        return await called(api, f"/mcp/{client}/http/{new_user}", name, arguments)

    return run


def text(result: dict[str, Any]) -> str:
    assert result.get("isError", False) is False, result
    return str(result["content"][0]["text"])


def failure(result: dict[str, Any]) -> str:
    """What an assistant is told of a failure: OpenMemory's words, but marked as an error."""
    assert result["isError"] is True, result
    [content] = result["content"]
    assert content["type"] == "text"
    return str(content["text"])


async def logged(api: httpx.AsyncClient, user: str, memory: str) -> list[dict[str, Any]]:
    params = {"user_id": user, "page_size": 100}
    logs = (await api.get(f"/api/v1/memories/{memory}/access-log", params=params)).json()["logs"]
    return [log for log in logs if log["access_type"] != "get"]


def md5(said: str) -> str:
    return hashlib.md5(said.encode(), usedforsecurity=False).hexdigest()


@pytest.mark.parametrize(
    ("name", "required", "optional"),
    [
        ("add_memories", {"text": "string"}, {"infer": "boolean"}),
        ("search_memory", {"query": "string"}, {}),
        ("list_memories", {}, {}),
        ("delete_memories", {"memory_ids": "array"}, {}),
        ("delete_all_memories", {}, {}),
    ],
)
async def test_each_tool_takes_the_arguments_that_it_took(
    api: httpx.AsyncClient, new_user: str, name: str, required: dict[str, str], optional: dict[str, str]
) -> None:
    message = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = await api.post(f"/mcp/claude/http/{new_user}", json=message, headers=JSON)
    [listed] = [tool for tool in answer.json()["result"]["tools"] if tool["name"] == name]
    schema = listed["inputSchema"]
    assert set(schema.get("required", [])) == set(required)
    for argument, kind in (required | optional).items():
        assert schema["properties"][argument]["type"] == kind
    if name == "add_memories":
        assert schema["properties"]["infer"]["default"] is True
    if name == "delete_memories":
        assert schema["properties"]["memory_ids"]["items"] == {"type": "string"}
    assert listed["description"]


@pytest.mark.parametrize("arguments", [{}, {"infer": True}, {"infer": False}])
async def test_adding_answers_with_what_became_of_the_text(call: Call, arguments: dict[str, Any]) -> None:
    answer = json.loads(text(await call("add_memories", text="I take my tea black", **arguments)))
    [added] = answer["results"]
    assert re.fullmatch(r"[0-9a-f-]{36}", added["id"])
    assert (added["memory"], added["event"]) == ("I take my tea black", "ADD")
    again = json.loads(text(await call("add_memories", text="I take my tea black", **arguments)))["results"]
    assert [(one["id"], one["event"]) for one in again] == [(added["id"], "NONE")]


async def test_adding_writes_the_row_its_history_and_the_app(api: httpx.AsyncClient, call: Call, new_user: str) -> None:
    added = json.loads(text(await call("add_memories", "cursor", text="I take my tea black")))["results"][0]
    found = (await api.get(f"/api/v1/memories/{added['id']}", params={"user_id": new_user})).json()
    assert (found["text"], found["app_name"], found["state"]) == ("I take my tea black", "cursor", "active")
    history = await api.get(f"/api/v1/memories/{added['id']}/history", params={"user_id": new_user})
    states = history.json()["states"]
    # OpenMemory said that a new memory had been deleted before.
    assert [(state["old_state"], state["new_state"]) for state in states] == [(None, "active")]


async def test_a_search_answers_with_at_most_ten(api: httpx.AsyncClient, call: Call, new_user: str) -> None:
    for number in range(12):
        await call("add_memories", text=f"Tea of kind {number}")
    written = text(await call("search_memory", query="Which tea?"))
    answer = json.loads(written)
    # OpenMemory indented it by two, which costs tokens and which no client reads.
    assert written == json.dumps(answer, separators=(",", ":"))
    assert len(answer["results"]) == 10
    scores = [found["score"] for found in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    best = answer["results"][0]
    assert set(best) >= {"id", "memory", "hash", "created_at", "updated_at", "score"}
    assert best["hash"] == md5(best["memory"])
    assert ISO.fullmatch(best["created_at"])
    assert ISO.fullmatch(best["updated_at"])
    [log] = await logged(api, new_user, best["id"])
    assert (log["access_type"], log["app_name"]) == ("search", "claude")
    metadata = log["metadata_"]
    assert (metadata["query"], metadata["hash"]) == ("Which tea?", best["hash"])
    assert metadata["score"] == pytest.approx(best["score"])


async def test_a_list_is_an_array_of_what_mem0_kept(api: httpx.AsyncClient, call: Call, new_user: str) -> None:
    await call("add_memories", "cursor", text="I like jazz")
    [item] = json.loads(text(await call("list_memories")))
    assert set(item) >= {"id", "memory", "hash", "metadata", "created_at", "updated_at", "user_id"}
    assert (item["memory"], item["user_id"], item["hash"]) == ("I like jazz", new_user, md5("I like jazz"))
    assert item["metadata"] == {"source_app": "openmemory", "mcp_client": "cursor"}
    assert ISO.fullmatch(item["created_at"])
    [log] = await logged(api, new_user, item["id"])
    assert (log["access_type"], log["app_name"], log["metadata_"]) == ("list", "claude", {"hash": item["hash"]})


async def test_what_rest_added_is_listed_with_its_app_as_the_client(call: Call, remember: Any, new_user: str) -> None:
    await remember("Written by the page", metadata={"topic": "page"})
    [item] = json.loads(text(await call("list_memories")))
    assert item["metadata"] == {"source_app": "openmemory", "mcp_client": "openmemory", "topic": "page"}


async def test_an_empty_memory_is_an_empty_array(call: Call) -> None:
    assert json.loads(text(await call("list_memories"))) == []
    assert json.loads(text(await call("search_memory", query="anything")))["results"] == []


async def test_deleting_by_id_counts_what_it_deleted(api: httpx.AsyncClient, call: Call, new_user: str) -> None:
    ids = [
        json.loads(text(await call("add_memories", text=f"Fact {number}")))["results"][0]["id"] for number in range(3)
    ]
    said = text(await call("delete_memories", memory_ids=[*ids[:2], str(uuid4())]))
    assert said == "Successfully deleted 2 memories"
    assert [item["id"] for item in json.loads(text(await call("list_memories")))] == ids[2:]
    found = (await api.get(f"/api/v1/memories/{ids[0]}", params={"user_id": new_user})).json()
    assert found["state"] == "deleted"
    [log] = await logged(api, new_user, ids[0])
    assert (log["access_type"], log["metadata_"]) == ("delete", {"operation": "delete_by_id"})
    history = await api.get(f"/api/v1/memories/{ids[0]}/history", params={"user_id": new_user})
    assert history.json()["states"][-1]["new_state"] == "deleted"


async def test_deleting_everything_is_logged_as_such(api: httpx.AsyncClient, call: Call, new_user: str) -> None:
    added = json.loads(text(await call("add_memories", text="I like jazz")))["results"][0]
    assert text(await call("delete_all_memories")) == "Successfully deleted all memories"
    assert json.loads(text(await call("list_memories"))) == []
    [log] = await logged(api, new_user, added["id"])
    assert (log["access_type"], log["metadata_"]) == ("delete_all", {"operation": "bulk_delete"})


async def test_deleting_everything_deletes_what_the_app_may_read_alone(
    api: httpx.AsyncClient, call: Call, new_user: str
) -> None:
    kept = json.loads(text(await call("add_memories", text="Not for cursor")))["results"][0]["id"]
    await call("add_memories", text="For everybody")
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "memory", "object": kept}
    await call("list_memories", "cursor")
    assert (await api.post("/api/v1/grants", json=rule)).status_code == 201
    assert text(await call("delete_all_memories", "cursor")) == "Successfully deleted all memories"
    assert [item["id"] for item in json.loads(text(await call("list_memories")))] == [kept]


@pytest.mark.parametrize(
    ("path", "said"),
    [
        ("/mcp/claude/http/", "Error: user_id not provided"),
        ("/mcp//http/bob", "Error: client_name not provided"),
    ],
)
@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("add_memories", {"text": "x"}), ("search_memory", {"query": "x"}), ("list_memories", {}),
        ("delete_memories", {"memory_ids": [str(uuid4())]}), ("delete_all_memories", {}),
    ],
)  # fmt: skip
async def test_a_name_that_is_not_provided_is_an_error_of_every_tool(
    api: httpx.AsyncClient, path: str, said: str, name: str, arguments: dict[str, Any]
) -> None:
    assert failure(await called(api, path, name, arguments)) == said


async def test_a_paused_app_is_told_so(api: httpx.AsyncClient, call: Call, new_user: str) -> None:
    await call("add_memories", text="Before the pause")
    apps = (await api.get("/api/v1/apps/", params={"user_id": new_user})).json()["apps"]
    [app] = [app["id"] for app in apps if app["name"] == "claude"]
    paused = await api.put(f"/api/v1/apps/{app}", params={"is_active": False, "user_id": new_user})
    assert paused.json()["status"] == "success"
    said = failure(await call("add_memories", text="After it"))
    assert said == "Error: App claude is currently paused on OpenMemory. Cannot create new memories."
    for tool, arguments in (("delete_memories", {"memory_ids": [str(uuid4())]}), ("delete_all_memories", {})):
        said = failure(await call(tool, **arguments))
        assert said.endswith("App claude is currently paused on OpenMemory. Cannot delete memories.")


async def test_ids_that_are_nobodys_or_anothers_are_the_same_error(
    api: httpx.AsyncClient, call: Call, remember: Any, new_user: str
) -> None:
    others = (await remember("Of somebody else", user=f"{new_user}-2"))["id"]
    await call("list_memories")
    for ids in ([str(uuid4())], [others], []):
        said = failure(await call("delete_memories", memory_ids=ids))
        assert said == "Error: No accessible memories found with provided IDs"


@pytest.mark.parametrize(
    ("name", "arguments", "beginning"),
    [
        ("add_memories", {"text": "  "}, "Error adding to memory: "),
        ("add_memories", {}, "Error adding to memory: "),
        ("search_memory", {"query": ""}, "Error searching memory: "),
        ("search_memory", {"query": 17}, "Error searching memory: "),
        ("list_memories", {"limit": -1}, "Error getting memories: "),
        ("delete_memories", {"memory_ids": ["nonsense"]}, "Error deleting memories: "),
        ("delete_memories", {"memory_ids": "nonsense"}, "Error deleting memories: "),
    ],
)
async def test_what_cannot_be_done_begins_with_the_words_that_it_began_with(
    call: Call, name: str, arguments: dict[str, Any], beginning: str
) -> None:
    said = failure(await call(name, **arguments))
    assert said.startswith(beginning)
    assert len(said) > len(beginning)


@pytest.mark.slow
async def test_without_its_database_the_memory_is_unavailable(short_folder: Path, new_user: str) -> None:
    path = f"/mcp/claude/http/{new_user}"
    async with staged(short_folder / "unavailable") as stage:
        assert text(await called(stage.http, path, "list_memories", {})) == "[]"
        await stage.wire.switch(Mode.REFUSE)
        await stage.wire.cut()
        for name, arguments in {
            "add_memories": {"text": "x"}, "search_memory": {"query": "x"}, "list_memories": {},
            "delete_memories": {"memory_ids": [str(uuid4())]}, "delete_all_memories": {},
        }.items():  # fmt: skip
            said = failure(await called(stage.http, path, name, arguments))
            assert said.startswith("Error: Memory system is currently unavailable. Please try again later.")
        await stage.wire.switch(Mode.PASS)

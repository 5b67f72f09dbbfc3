from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from sqlalchemy import text

from openmemory.identity.caller import Caller
from openmemory.memories import changes
from openmemory.memories.models import Memory
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.services import Services

Call = Callable[..., Awaitable[dict[str, Any]]]
Failure = Callable[..., Awaitable[str]]
Remember = Callable[..., Awaitable[str]]

MEM0 = {"source_app": "openmemory", "mcp_client": "claude"}
"""What mem0 put into the metadata of every memory."""


def _text(result: dict[str, Any]) -> str:
    content = result["content"][0]
    assert content["type"] == "text"
    assert result.get("isError", False) is False
    return str(content["text"])


async def _ids(call: Call, **arguments: Any) -> list[str]:
    return [item["id"] for item in json.loads(_text(await call("list_memories", **arguments)))]


async def test_a_text_is_remembered_verbatim_and_the_answer_says_that_no_model_was_asked(call: Call) -> None:
    result = await call("add_memories", text="  I take my tea without sugar ☕  ")
    answer = json.loads(_text(result))
    [added] = answer["results"]
    assert (added["memory"], added["event"]) == ("  I take my tea without sugar ☕  ", "ADD")
    assert "verbatim" in answer["note"]
    assert result["structuredContent"] == answer


async def test_a_text_is_remembered_for_a_time(call: Call, failure: Failure, services: Services, new_user: str) -> None:
    added = (await call("add_memories", text="The lift is broken.", ttl_days=14))["structuredContent"]["results"]
    caller = await services.directory.caller(new_user, "claude")
    at = (await services.memories.get(caller, UUID(added[0]["id"]))).expires_at
    assert at is not None
    assert abs(at - datetime.now(UTC) - timedelta(days=14)) < timedelta(minutes=1)
    later = await call("add_memories", text="The fair is in May.", expires_at="2090-05-31T00:00:00+02:00")
    found = await services.memories.get(caller, UUID(later["structuredContent"]["results"][0]["id"]))
    assert found.expires_at == datetime(2090, 5, 30, 22, tzinfo=UTC)
    assert "ttl_days: must be from 1" in await failure("add_memories", text="A thing.", ttl_days=-1)
    both = await failure("add_memories", text="A thing.", ttl_days=1, expires_at="2090-05-31T00:00:00Z")
    assert "ttl_days: must be left out where expires_at is given" in both
    assert "expires_at: must carry an offset" in await failure(
        "add_memories", text="A thing.", expires_at="2090-05-31T00:00:00"
    )


async def test_without_inference_there_is_nothing_to_note(call: Call) -> None:
    answer = json.loads(_text(await call("add_memories", text="I cycle to work", infer=False)))
    assert set(answer) == {"results"}


async def test_a_text_that_is_remembered_already_is_answered_with_its_memory(call: Call) -> None:
    first = (await call("add_memories", text="I have a dog"))["structuredContent"]["results"][0]
    again = (await call("add_memories", text="I have a dog"))["structuredContent"]["results"][0]
    assert again == first | {"event": "NONE"}


async def test_namespace_and_metadata_are_kept(call: Call, remember: Remember) -> None:
    await remember("The build needs Python 3.11", namespace="backend", metadata={"source": "chat", "n": [1, None]})
    await remember("The build needs Node 24", namespace="frontend")
    [item] = (await call("list_memories", namespace="backend"))["structuredContent"]["result"]
    assert item["namespace"] == "backend"
    assert item["metadata"] == MEM0 | {"source": "chat", "n": [1, None]}


async def test_null_counts_as_left_out(call: Call) -> None:
    result = await call("add_memories", text="I like jazz", infer=None, namespace=None, metadata=None)
    assert "verbatim" in _text(result)


async def test_the_list_is_a_plain_array_newest_first(call: Call, remember: Remember, new_user: str) -> None:
    ids = [await remember(f"Fact number {number}") for number in range(3)]
    result = await call("list_memories")
    items = json.loads(_text(result))
    assert [item["id"] for item in items] == ids[::-1]
    assert items[0]["memory"] == "Fact number 2"
    assert {"hash", "metadata", "created_at", "updated_at"} < set(items[0])
    assert items[0]["user_id"] == new_user
    assert items[0]["app_name"] == "claude"
    assert result["structuredContent"] == {"result": items, "total": 3}


async def test_the_list_pages_without_gap_or_overlap(call: Call, remember: Remember) -> None:
    ids = [await remember(f"Fact number {number}") for number in range(5)]
    pages = [await _ids(call, limit=2, offset=offset) for offset in (0, 2, 4, 6)]
    assert [len(page) for page in pages] == [2, 2, 1, 0]
    assert [id for page in pages for id in page] == ids[::-1]
    assert (await call("list_memories", limit=1, offset=4))["structuredContent"]["total"] == 5


async def test_an_update_corrects_the_text_and_tells_the_former_one(call: Call, remember: Remember) -> None:
    memory_id = await remember("I live in Bonn", metadata={"source": "chat"})
    result = await call("update_memory", memory_id=memory_id, text="I live in Graz")
    [updated] = json.loads(_text(result))["results"]
    assert updated == {
        "id": memory_id, "memory": "I live in Graz", "event": "UPDATE", "previous_memory": "I live in Bonn",
        "revision": 2,
    }  # fmt: skip
    [item] = (await call("list_memories"))["structuredContent"]["result"]
    assert (item["memory"], item["metadata"]) == ("I live in Graz", MEM0 | {"source": "chat"})
    again = await call("update_memory", memory_id=memory_id, text="I live in Graz")
    assert again["structuredContent"]["results"][0]["event"] == "NONE"
    await call("update_memory", memory_id=memory_id, text="I live in Graz", metadata={"since": 2026})
    [item] = (await call("list_memories"))["structuredContent"]["result"]
    assert item["metadata"] == MEM0 | {"since": 2026}


async def test_an_update_tells_the_text_that_it_really_replaced(
    call: Call, remember: Remember, services: Services, owner: Caller, eventually: Callable[..., Awaitable[None]]
) -> None:
    memory_id = await remember("I live in Bonn")
    async with services.database.transaction() as tx:
        change, labels = MemoryUpdate(text="I live in Linz"), services.memories.intake.labels
        await changes.update_text(tx, owner, Memory.id == UUID(memory_id), change, labels)
        updating = asyncio.create_task(call("update_memory", memory_id=memory_id, text="I live in Graz"))

        async def waits_for_us() -> bool:
            ours = "NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"
            return bool(await tx.scalar(text(f"SELECT count(*) FROM pg_locks WHERE {ours}")))

        await eventually(waits_for_us)
    [updated] = (await updating)["structuredContent"]["results"]
    assert (updated["previous_memory"], updated["revision"]) == ("I live in Linz", 3)


async def test_what_is_deleted_is_gone_and_can_be_restored(call: Call, remember: Remember) -> None:
    kept, first, second = [await remember(f"Fact number {number}") for number in range(3)]
    deleted = await call("delete_memories", memory_ids=[first, second, str(uuid4())])
    assert _text(deleted) == "Successfully deleted 2 memories"
    assert deleted["structuredContent"] == {"result": "Successfully deleted 2 memories"}
    assert await _ids(call) == [kept]
    assert _text(await call("restore_memories", memory_ids=[first])) == "Successfully restored 1 memories"
    assert set(await _ids(call)) == {kept, first}


async def test_deleting_everything_leaves_nothing_and_never_fails(call: Call, remember: Remember) -> None:
    for number in range(3):
        await remember(f"Fact number {number}")
    for _ in range(2):
        assert _text(await call("delete_all_memories")) == "Successfully deleted all memories"
        assert await _ids(call) == []


@pytest.mark.parametrize("tool", ["delete_memories", "restore_memories"])
async def test_ids_that_name_nothing_accessible_are_an_error(
    tool: str, call: Call, failure: Failure, remember: Remember
) -> None:
    expected = "Error: No accessible memories found with provided IDs"
    assert await failure(tool, memory_ids=[str(uuid4())]) == expected
    if tool == "delete_memories":
        assert await failure(tool, memory_ids=[]) == expected
    another = f"user-{uuid4().hex}"
    result = await call("add_memories", _user=another, text="Not yours")
    assert await failure(tool, memory_ids=[result["structuredContent"]["results"][0]["id"]]) == expected


async def test_what_is_deleted_cannot_be_updated(call: Call, failure: Failure, remember: Remember) -> None:
    memory_id = await remember("I live in Bonn")
    await call("delete_memories", memory_ids=[memory_id])
    assert await failure("update_memory", memory_id=memory_id, text="I live in Graz") == "Error: Memory not found"


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("add_memories", {}, "Error adding to memory: text: Field required"),
        ("add_memories", {"text": ""}, "Error adding to memory: text: must not be empty or blank"),
        ("add_memories", {"text": 5}, "Error adding to memory: text: Input should be a valid string"),
        ("add_memories", {"text": "a\x00b"}, "text: must not contain the NUL character"),
        ("add_memories", {"text": "a" * 16_001}, "text: has 16,001 characters; the limit is 16,000 (limits.text)"),
        ("add_memories", {"text": "a", "namespace": " "}, "namespace: must not be empty or blank"),
        ("add_memories", {"text": "a", "metadata": [1]}, "metadata: Input should be"),
        ("add_memories", {"text": "a", "metadata": {"a": "\x00"}}, "must not contain the NUL character"),
        ("add_memories", {"text": "a", "metadata": {"a": "b" * 20_000}}, "the limit is 16,384 (limits.metadata)"),
        ("list_memories", {"limit": -1}, "Error getting memories: limit: must be from 1 to 1,000, not -1"),
        ("list_memories", {"limit": 10**30}, "limit: must be from 1 to 1,000"),
        ("list_memories", {"limit": "many"}, "limit: Input should be a valid integer"),
        ("list_memories", {"offset": -1}, "offset: must be from 0 to 10,000,000, not -1"),
        ("update_memory", {"memory_id": "1", "text": "a"}, "memory_id: must be UUIDs"),
        ("update_memory", {"memory_id": str(uuid4()), "text": "a"}, "Error: Memory not found"),
        ("delete_memories", {"memory_ids": ["x"]}, "Error deleting memories: memory_ids: must be UUIDs"),
        ("delete_memories", {"memory_ids": "x"}, "memory_ids: must be UUIDs"),
        ("delete_memories", {"memory_ids": [str(uuid4())] * 2 + [""]}, "memory_ids: must be UUIDs"),
        ("delete_memories", {"memory_ids": [f"{n:032x}" for n in range(1001)]}, "the limit is 1,000 (limits.ids)"),
        ("restore_memories", {"memory_ids": ["\x00"]}, "Error restoring memories: memory_ids: must be UUIDs"),
    ],
)
async def test_what_cannot_be_used_is_said_with_the_argument_and_the_remedy(
    failure: Failure, tool: str, arguments: dict[str, Any], said: str
) -> None:
    assert said in await failure(tool, **arguments)


async def test_a_paused_app_is_told_so_and_reads_nothing(
    call: Call, failure: Failure, remember: Remember, http: httpx.AsyncClient, new_user: str
) -> None:
    await remember("I like jazz")
    apps = (await http.get("/api/v1/apps/", params={"user_id": new_user})).json()["apps"]
    [app_id] = [app["id"] for app in apps if app["name"] == "claude"]
    paused = await http.put(f"/api/v1/apps/{app_id}", params={"is_active": False, "user_id": new_user})
    assert paused.status_code == 200, paused.text
    said = await failure("add_memories", text="I like blues")
    assert said == "Error: App claude is currently paused on OpenMemory. Cannot create new memories."
    said = "App claude is currently paused on OpenMemory. Cannot read memories."
    listed = (await call("list_memories"))["structuredContent"]
    assert (listed["result"], listed["note"]) == ([], said)
    found = (await call("search_memory", query="jazz"))["structuredContent"]
    assert (found["results"], found["note"]) == ([], said)
    assert "note" not in (await call("list_memories", _app="cursor"))["structuredContent"]
    assert len(await _ids(call, _app="cursor")) == 1


async def test_apps_of_a_user_share_memories_and_users_share_none(call: Call, remember: Remember) -> None:
    memory_id = await remember("I like jazz")
    assert await _ids(call, _app="cursor") == [memory_id]
    assert await _ids(call, _user=f"user-{uuid4().hex}") == []


@pytest.mark.usefixtures("in_bulk")
async def test_more_memories_than_one_call_lists_are_counted(
    services: Services, call: Call, new_user: str, app_caller: Caller
) -> None:
    await services.memories.add_many(app_caller, [MemoryCreate(text=f"Fact number {n}") for n in range(1000)])
    await services.memories.add(app_caller, MemoryCreate(text="The newest fact"))
    result = await call("list_memories")
    assert len(json.loads(_text(result))) == 50
    assert result["structuredContent"]["total"] == 1001
    assert result["structuredContent"]["result"][0]["memory"] == "The newest fact"
    assert result["content"][1]["text"] == "1 to 50 of 1001 memories; go on with offset=50."
    assert len(json.loads(_text(await call("list_memories", limit=1000)))) == 1000


async def test_without_ids_what_the_assistant_deleted_last_comes_back(
    call: Call, failure: Failure, remember: Remember
) -> None:
    first, second = [await remember(f"Fact number {number}") for number in range(2)]
    await call("delete_memories", memory_ids=[first])
    await call("delete_all_memories")
    assert _text(await call("restore_memories")) == f"Successfully restored 1 memories: {second}"
    assert _text(await call("restore_memories")) == f"Successfully restored 1 memories: {first}"
    assert await failure("restore_memories") == "Error: There is nothing to restore that you deleted"

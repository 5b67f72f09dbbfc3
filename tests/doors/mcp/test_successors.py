"""A client that was configured for Mempack or DevMemory changes its address and nothing else: the official SDK calls
every tool of theirs, and gets their answers and errors."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mcp import Client
from mcp_types import CallToolResult
from sqlalchemy import update

from openmemory.projects.models import ReadUsage
from openmemory.projects.schemas import NewValue
from openmemory.services import Services
from openmemory.sources.schemas import NewFile, NewSession

Tools = Callable[..., Awaitable[CallToolResult]]


def text_of(result: CallToolResult) -> str:
    """The first text, which is all that DevMemory and Mempack answer."""
    assert not result.is_error, result
    return str(result.content[0].text)  # type: ignore[union-attr]


def json_of(result: CallToolResult) -> Any:
    return json.loads(text_of(result))


def error_of(result: CallToolResult) -> str:
    assert result.is_error, result
    return str(result.content[0].text)  # type: ignore[union-attr]


def _calls(url: str, toolsets: str, user: str) -> Tools:
    async def call(_name: str, **given: Any) -> CallToolResult:
        async with _client(url, toolsets, user) as client:
            return await client.call_tool(_name, given)

    return call


def _client(url: str, toolsets: str, user: str) -> Client:
    return Client(f"{url}/mcp/agent/http/{user}?toolsets={toolsets}", mode="legacy", read_timeout_seconds=30)


@pytest.fixture
def devmemory(url: str, new_user: str) -> Tools:
    """Calls a tool as a client of DevMemory."""
    return _calls(url, "devmemory", new_user)


@pytest.fixture
def mempack(url: str, new_user: str) -> Tools:
    """Calls a tool as a client of Mempack."""
    return _calls(url, "mempack", new_user)


DEVMEMORY = {
    "project_register": ({"id", "name"}, {"root_path"}),
    "project_list": (set[str](), set[str]()),
    "project_status": ({"project_id"}, set[str]()),
    "memory_set": ({"project_id", "topic", "key", "value"}, set[str]()),
    "memory_get": ({"project_id", "topic", "key"}, set[str]()),
    "memory_list": ({"project_id"}, {"topic"}),
    "memory_search": ({"project_id", "query"}, {"limit"}),
    "memory_delete": ({"project_id", "topic", "key"}, set[str]()),
    "session_create": ({"project_id", "session_num", "title"}, {"summary", "content"}),
    "session_get": ({"project_id", "session_num"}, set[str]()),
    "session_list": ({"project_id"}, set[str]()),
    "session_search": ({"project_id", "query"}, {"limit"}),
    "file_index": ({"project_id", "file_path"}, {"file_type", "summary", "symbols"}),
    "file_search": ({"project_id", "query"}, {"limit"}),
}
"""The arguments that each tool requires, and its other arguments."""

_PLACE = {"repo", "workspace"}
MEMPACK = {
    "mem_get_initial_context": (set[str](), _PLACE),
    "mem_get_context": ({"query"}, _PLACE | {"budget", "cluster"}),  # and `format`, which every tool of ours has
    "mem_usage": (set[str](), {"repo", "me"}),
    "mem_explain": ({"query"}, _PLACE),
    "mem_add_memory": ({"title"}, _PLACE | {"summary", "thread", "tags", "entities"}),
    "mem_update_memory": (
        {"id"},
        {"title", "summary", "tags", "tags_add", "tags_remove", "entities", "entities_add", "entities_remove"},
    ),
    "mem_link_memories": ({"from_id", "rel", "to_id"}, set[str]()),
    "mem_checkpoint": ({"reason", "state_json"}, _PLACE | {"thread"}),
}  # fmt: skip


@pytest.mark.parametrize(("toolset", "expected"), [("devmemory", DEVMEMORY), ("mempack", MEMPACK)])
async def test_every_tool_is_listed_with_their_arguments(
    url: str, new_user: str, toolset: str, expected: dict[str, tuple[set[str], set[str]]]
) -> None:
    async with _client(url, toolset, new_user) as client:
        listed = {tool.name: tool.input_schema for tool in (await client.list_tools()).tools}
        for name, (required, others) in expected.items():
            schema = listed[name]
            assert set(schema.get("required", ())) == required, name
            assert required | others <= schema["properties"].keys() | {"confirmed"}, name


@pytest.mark.parametrize("name", [name for name, (required, _) in DEVMEMORY.items() if required])
async def test_a_missing_argument_is_a_tool_error_of_devmemory(devmemory: Tools, name: str) -> None:
    assert "Field required" in error_of(await devmemory(name))


@pytest.mark.parametrize("name", [name for name, (required, _) in MEMPACK.items() if required])
async def test_a_missing_argument_is_a_tool_error_of_mempack(mempack: Tools, name: str) -> None:
    assert "Field required" in error_of(await mempack(name))


async def test_projects_of_devmemory(devmemory: Tools) -> None:
    assert json_of(await devmemory("project_list")) == []
    registered = await devmemory("project_register", id="shop", name="The shop", root_path="/src/shop")
    assert text_of(registered) == "Project registered: The shop (shop)"
    await devmemory("memory_set", project_id="shop", topic="t", key="k", value="v")
    await devmemory("session_create", project_id="shop", session_num="1", title="First")
    [listed] = json_of(await devmemory("project_list"))
    assert {"id": "shop", "name": "The shop", "root_path": "/src/shop"}.items() <= listed.items()
    status = json_of(await devmemory("project_status", project_id="shop"))
    assert status["project"] == {"id": "shop", "name": "The shop", "root_path": "/src/shop"}
    assert (status["memory_count"], status["session_count"]) == (1, 1)
    assert "embedding_status" in status
    assert "not found" in error_of(await devmemory("project_status", project_id="unknown"))


async def test_values_of_devmemory(devmemory: Tools, services: Services) -> None:
    place = {"project_id": "shop", "topic": "stack", "key": "database"}
    assert text_of(await devmemory("memory_get", **place)) == "not found"
    assert (
        text_of(await devmemory("memory_set", **place, value="MySQL")) == "Memory set: stack/database (embedded: yes)"
    )
    assert text_of(await devmemory("memory_set", **place, value="PostgreSQL: 17")).startswith("Memory set: stack/data")
    row = json_of(await devmemory("memory_get", **place))
    assert place.items() <= row.items()
    assert row["value"] == "PostgreSQL: 17"
    assert {"id", "created_at", "updated_at", "created_by"} <= row.keys()
    await devmemory("memory_set", project_id="shop", topic="team", key="lead", value="Zoe")
    assert [one["key"] for one in json_of(await devmemory("memory_list", project_id="shop"))] == ["database", "lead"]
    assert [one["value"] for one in json_of(await devmemory("memory_list", project_id="shop", topic="team"))] == ["Zoe"]
    odd = {"project_id": "shop", "topic": "urls", "key": "docs: main"}
    await devmemory("memory_set", **odd, value="https://example.com")
    await services.outbox_delivery.drain()
    [found] = json_of(await devmemory("memory_search", project_id="shop", query="docs", limit=1))["results"]
    assert odd.items() <= found.items()
    assert found["value"] == "https://example.com"
    asked = {"project_id": "shop", "query": "which database?"}
    found = json_of(await devmemory("memory_search", **asked, limit="1"))
    assert (found["search_type"], found["query"], found["count"]) == ("semantic (vector)", "which database?", 1)
    assert place.items() <= found["results"][0].items()
    assert found["results"][0]["value"] == "PostgreSQL: 17"
    assert {"id", "value", "created_at", "updated_at", "created_by", "score"} <= found["results"][0].keys()
    assert text_of(await devmemory("memory_delete", **place)) == "Deleted: stack/database"
    assert text_of(await devmemory("memory_get", **place)) == "not found"


async def test_a_long_list_of_devmemory_says_that_there_is_more(
    devmemory: Tools, services: Services, new_user: str
) -> None:
    for number in range(51):
        caller = await services.directory.caller(new_user, f"app {number % 3}")  # none saves more often than it may
        await services.values.set(caller, NewValue("t", f"{number:02}", "v", "shop"))
    listed = await devmemory("memory_list", project_id="shop")
    assert len(json_of(listed)) == 50
    assert listed.content[1].text == "51 in all; page 2 has more."  # type: ignore[union-attr]
    assert [one["key"] for one in json_of(await devmemory("memory_list", project_id="shop", page="2"))] == ["50"]


async def test_sessions_of_devmemory(devmemory: Tools, services: Services) -> None:
    place = {"project_id": "shop", "session_num": "7"}
    assert text_of(await devmemory("session_get", **place)) == "not found"
    about = {"title": "Retries", "summary": "The delays double.", "content": "Zoe: the delays double each time."}
    assert text_of(await devmemory("session_create", **place, **about)) == "Session 7 created: Retries"
    assert text_of(await devmemory("session_create", **place, **about)) == "Session 7 created: Retries"
    row = json_of(await devmemory("session_get", **place))
    assert {"project_id": "shop", "session_num": 7, **about}.items() <= row.items()
    [listed] = json_of(await devmemory("session_list", project_id="shop"))
    assert (listed["session_num"], listed["title"]) == (7, "Retries")
    await services.outbox_delivery.drain()
    found = json_of(await devmemory("session_search", project_id="shop", query="what happens to the delays?"))
    assert found["search_type"] == "semantic (vector)"
    assert found["count"] == len(found["results"]) > 0
    assert {"session_num": 7, "project_id": "shop"}.items() <= found["results"][0].items()
    assert "session_num" in error_of(await devmemory("session_create", project_id="shop", session_num="x", title="t"))


async def test_files_of_devmemory(devmemory: Tools, services: Services) -> None:
    place = {"project_id": "shop", "file_path": "src/parcel.py"}
    about = {"file_type": "python", "summary": "Sends parcels.", "symbols": '[{"name": "send"}]'}
    assert text_of(await devmemory("file_index", **place, **about)) == "Indexed: src/parcel.py"
    await services.outbox_delivery.drain()
    found = json_of(await devmemory("file_search", project_id="shop", query="how are parcels sent?", limit="5"))
    assert (found["search_type"], found["count"]) == ("semantic (vector)", 1)
    assert place.items() <= found["results"][0].items()
    assert "Sends parcels." in found["results"][0]["summary"]


async def test_a_file_of_devmemory_needs_only_its_path(devmemory: Tools, services: Services) -> None:
    indexed = await devmemory("file_index", project_id="shop", file_path="./src/parcel.py")
    assert text_of(indexed) == "Indexed: src/parcel.py"
    await services.outbox_delivery.drain()
    [found] = json_of(await devmemory("file_search", project_id="shop", query="parcel"))["results"]
    assert (found["file_path"], found["summary"]) == ("src/parcel.py", "src/parcel.py")
    place = {"project_id": "shop", "file_path": "src/parcel.py"}
    await devmemory("file_index", **place, summary="Sends parcels.")
    assert text_of(await devmemory("file_index", **place)) == "Indexed: src/parcel.py"  # which keeps what is known
    await services.outbox_delivery.drain()
    [found] = json_of(await devmemory("file_search", project_id="shop", query="parcels"))["results"]
    assert found["summary"] == "Sends parcels."


@pytest.mark.parametrize(
    ("tool", "given", "words"),
    [
        ("file_index", {"file_path": ""}, "file_path: must have 1 to"),
        ("file_index", {"file_path": "../parcel.py", "summary": "Parcels."}, "file_path: must be relative"),
        ("file_index", {"file_path": "a.py", "summary": "a\x00b"}, "summary: must not contain the NUL character"),
        ("session_create", {"session_num": "-1", "title": "t"}, "session_num: must be from 0 to"),
        ("session_create", {"session_num": "1", "title": ""}, "title: must not be empty"),
        ("session_get", {"session_num": "-1"}, "session_num: must be from 0 to"),
        ("session_get", {"session_num": "99999999999"}, "session_num: must be from 0 to"),
    ],
)
async def test_errors_of_devmemory_name_the_argument(
    devmemory: Tools, tool: str, given: dict[str, Any], words: str
) -> None:
    assert f": {words}" in error_of(await devmemory(tool, project_id="shop", **given))


async def test_notes_of_mempack(mempack: Tools) -> None:
    place = {"repo": "shop", "workspace": "web"}
    given = {"title": "Zoe chose the delays.", "summary": "They double.", "tags": "retry", "entities": ["Zoe"]}
    added = json_of(await mempack("mem_add_memory", **given, **place, thread="T-1"))
    assert {"thread_id": "T-1", "thread_used": "T-1", "thread_defaulted": False, "title": given["title"]}.items() <= (
        added.items()
    )
    assert {"id", "anchor_commit", "created_at"} <= added.keys()
    other = json_of(await mempack("mem_add_memory", title="The delays are kept in a file.", **place))
    assert (other["thread_defaulted"], other["thread_used"], other["thread_id"]) == (True, "T-SESSION", "T-SESSION")
    changed = await mempack("mem_update_memory", id=added["id"], title="Mia chose the delays.", tags_add="x", **place)
    assert {
        "id": added["id"],
        "thread_id": "T-1",
        "title": "Mia chose the delays.",
        "summary": "They double.",
    }.items() <= (json_of(changed).items())
    assert "operation_at" in json_of(changed)
    assert len(changed.content) == 1  # no note about `repo`, which Mempack has
    ends = {"from_id": added["id"], "to_id": other["id"]}
    link = json_of(await mempack("mem_link_memories", **ends, rel="explains", **place))
    assert {**ends, "rel": "explains", "weight": 1, "created": True, "status": "linked"}.items() <= link.items()
    again = json_of(await mempack("mem_link_memories", **ends, rel="explains"))
    assert (again["created"], again["status"]) == (False, "exists")
    back = {"from_id": other["id"], "to_id": added["id"], "rel": "explains"}
    assert "cycle" in error_of(await mempack("mem_link_memories", **back))
    own = {"from_id": other["id"], "to_id": other["id"], "rel": "explains"}
    assert "another memory" in error_of(await mempack("mem_link_memories", **own))


async def test_a_note_of_mempack_has_a_title_of_one_line(mempack: Tools) -> None:
    added = json_of(
        await mempack("mem_add_memory", title=" The port\nof the database ", summary="is 5432.", repo="shop")
    )
    assert added["title"] == "The port of the database"
    changed = json_of(await mempack("mem_update_memory", id=added["id"], title="The port\nof Redis"))
    assert (changed["title"], changed["summary"]) == ("The port of Redis", "is 5432.")
    blank = "title: must not be empty or blank"
    assert blank in error_of(await mempack("mem_add_memory", title="", summary="It is 5432.", repo="shop"))
    assert blank in error_of(await mempack("mem_update_memory", id=added["id"], title="  "))
    long = "title and summary: has 17,002 characters"
    assert long in error_of(await mempack("mem_add_memory", title="x", summary="y" * 17_000, repo="shop"))
    assert "title and summary: has" in error_of(
        await mempack("mem_update_memory", id=added["id"], summary="y" * 17_000)
    )


async def test_threads_and_chunks_of_mempack(mempack: Tools, services: Services, new_user: str) -> None:
    caller = await services.directory.caller(new_user, "agent")
    text = "# Ports\nThe port of the database is 5432."
    await services.files.store(caller, "shop", [NewFile("docs/ports.md", text)])
    await services.sessions.save(caller, NewSession(3, "Ports", namespace="shop"))
    await services.outbox_delivery.drain()
    begun = (await mempack("mem_get_initial_context", repo="shop")).structured_content
    assert begun is not None
    assert begun["recent_threads"] == ["session-3"]
    pack = json_of(await mempack("mem_get_context", query="port of the database", repo="shop"))
    [chunk] = [one for one in pack["top_chunks"] if one["locator"].startswith("docs/")]
    assert (chunk["artifact_id"], chunk["locator"], chunk["text"]) == ("docs/ports.md", "docs/ports.md:1-2", text)
    [source] = chunk["sources"]
    assert source.keys() == {"chunk_id", "artifact_id", "thread_id", "locator", "created_at"}
    assert source["chunk_id"] == chunk["chunk_id"]


async def test_usage_of_mempack_counts_a_year(mempack: Tools, services: Services, new_user: str) -> None:
    await mempack("mem_get_context", query="anything", repo="shop")
    assert json_of(await mempack("mem_usage", repo="shop"))["repo"]["request_count"] == 1
    caller = await services.directory.caller(new_user, "agent")
    async with services.database.transaction() as tx:
        long_ago = datetime.now(UTC).date() - timedelta(days=300)
        await tx.execute(update(ReadUsage).where(ReadUsage.user_id == caller.user_id).values(day=long_ago))
    assert json_of(await mempack("mem_usage", repo="shop"))["repo"]["request_count"] == 1
    assert json_of(await mempack("mem_usage", me=True))["overall"]["request_count"] == 1


@pytest.mark.parametrize("tool", ["mem_get_context", "mem_explain"])
async def test_a_pack_of_mempack_needs_a_question(mempack: Tools, tool: str) -> None:
    assert error_of(await mempack(tool, query=" ")).endswith(": query: must not be empty or blank")


async def test_context_of_mempack(mempack: Tools, services: Services) -> None:
    place = {"repo": "shop"}
    nothing = await mempack("mem_get_initial_context", **place)
    assert text_of(nothing) == "Nothing is remembered here yet."
    assert nothing.structured_content is not None
    assert nothing.structured_content["has_state"] is False
    saved = json_of(await mempack("mem_checkpoint", reason="It begins.", state_json='{"port": 6432}', **place))
    assert {
        "workspace": "default",
        "reason": "It begins.",
        "thread_defaulted": True,
        "thread_used": "T-SESSION",
    }.items() <= (saved.items())
    assert {"state_id", "memory_id"} <= saved.keys()
    assert "state_json" in error_of(await mempack("mem_checkpoint", reason="Bad.", state_json="{no", **place))
    await mempack("mem_add_memory", title="The port of the database", summary="is 5432.", thread="T-1", **place)
    await services.outbox_delivery.drain()

    begun = (await mempack("mem_get_initial_context", **place)).structured_content
    assert begun is not None
    assert {"repo_id": "shop", "workspace": "default", "has_state": True, "chunk_count": 0}.items() <= begun.items()
    assert {"state_summary", "recent_threads", "memory_count", "suggestion"} <= begun.keys()
    assert "6432" in begun["state_summary"]

    pack = json_of(await mempack("mem_get_context", query="which port?", budget="800", cluster=False, **place))
    assert (pack["version"], pack["tool"], pack["workspace"]) == ("1.0", "mem_get_context", "default")
    assert pack["repo"] == {"repo_id": "shop", "git_root": "", "head": "", "branch": ""}
    assert (pack["search_meta"]["mode_used"], pack["search_meta"]["vector_used"]) == ("hybrid", True)
    assert {"query", "sanitized_query", "mode", "rewritten_query", "rewrites_applied", "fallback_reason", "warnings",
            "intent", "entities_found", "time_hint", "recency_boost", "clusters_formed"
            } <= pack["search_meta"].keys()  # fmt: skip
    assert (pack["state"], pack["state_source"]) == ({"port": 6432}, "state_current")
    [note] = [one for one in pack["top_memories"] if one["thread_id"] == "T-1"]
    assert (note["title"], note["summary"]) == ("The port of the database", "is 5432.")
    assert "_" not in note
    assert {"id", "anchor_commit", "links", "is_cluster", "cluster_size", "cluster_ids"} <= note.keys()
    assert {"matched_threads", "top_chunks", "link_trail", "rules", "budget"} <= pack.keys()
    assert {"tokenizer", "target_total", "candidate_total", "pre_budget_total", "truncated_total",
            "dropped_total", "saved_total", "used_total"} <= pack["budget"].keys()  # fmt: skip
    assert pack["budget"]["used_total"] <= pack["budget"]["target_total"] == 800
    prompt = text_of(await mempack("mem_get_context", query="which port?", format="prompt", **place))
    assert prompt.startswith("OpenMemory, project shop:")
    assert "budget" in error_of(await mempack("mem_get_context", query="which port?", budget=-1))
    assert "prompt" in error_of(await mempack("mem_get_context", query="which port?", format="xml"))

    report = json_of(await mempack("mem_explain", query="which port?", **place))
    assert {one["kind"] for one in report["items"]} == {"state", "memory"}
    evidence = {"bm25", "fts_rank", "vector_score", "vector_rank", "fusion", "bonus", "penalty", "superseded"}
    fields = {"included", "why", "score", "rank", "final", "orphaned", *evidence}
    assert all(fields <= one.keys() for one in report["items"])
    [state] = [one for one in report["items"] if one["kind"] == "state"]
    assert {state[name] for name in evidence} == {None, False}
    [found] = [one for one in report["items"] if one["title"].startswith("The port of the database")]
    assert (found["fts_rank"], found["vector_rank"], found["included"], found["orphaned"]) == (1, 1, True, False)
    assert found["bm25"] > 0
    assert 0 < found["vector_score"] <= 1
    assert 1 / (1 + math.exp(found["penalty"] - found["fusion"] - found["bonus"])) == pytest.approx(
        found["final"], abs=1e-3
    )

    usage = json_of(await mempack("mem_usage", **place))
    assert (usage["scope"], usage["repo_id"], usage["repo"]["request_count"]) == ("repo", "shop", 3)
    totals = {f"{name}_total" for name in ("candidate", "used", "saved", "truncated", "dropped")}
    assert usage["repo"].keys() == usage["overall"].keys() == {"request_count", *totals}
    everywhere = json_of(await mempack("mem_usage", me=True))
    assert (everywhere["scope"], everywhere["overall"]["request_count"]) == ("profile", 3)
    assert "me" in error_of(await mempack("mem_usage", me=True, **place))


async def test_the_form_of_answers_can_still_be_chosen(url: str, new_user: str) -> None:
    async with _client(url, "devmemory&format=compact", new_user) as client:
        place = {"project_id": "shop", "topic": "stack", "key": "database"}
        assert (
            text_of(await client.call_tool("memory_set", {**place, "value": "MySQL"})) == "Memory set: stack/database"
        )
        got = await client.call_tool("memory_get", place)
        assert text_of(got) == "stack/database: MySQL"
        assert got.structured_content is None


async def test_tags_are_a_list_or_a_text_with_commas(mempack: Tools, services: Services) -> None:
    given = {"title": "Zoe chose the delays.", "tags": "zeppelin, retry", "entities": "Zoe,Mia", "repo": "shop"}
    added = json_of(await mempack("mem_add_memory", **given))
    await mempack("mem_update_memory", id=added["id"], tags_add="a,b", tags_remove=["retry"])
    await services.outbox_delivery.drain()
    pack = json_of(await mempack("mem_get_context", query="zeppelin", repo="shop"))
    [note] = pack["top_memories"]
    assert (note["tags"], note["entities"]) == (["zeppelin", "a", "b"], ["Zoe", "Mia"])


async def test_the_repository_of_the_client_is_told(url: str, new_user: str) -> None:
    where = "project=shop&folder=%2Fsrc%2Fshop&branch=feature%2Fx&head=" + "a" * 40
    async with _client(url, f"mempack&{where}", new_user) as client:
        pack = json_of(await client.call_tool("mem_get_context", {"query": "anything"}))
        assert pack["repo"] == {"repo_id": "shop", "git_root": "/src/shop", "head": "a" * 40, "branch": "feature/x"}
        other = json_of(await client.call_tool("mem_get_context", {"query": "anything", "repo": "other"}))
        assert other["repo"] == {"repo_id": "other", "git_root": "", "head": "", "branch": ""}

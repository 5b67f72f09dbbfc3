"""Tools of a project: packs, checkpoints, notes, links and values, by the names of Mempack and DevMemory."""

from __future__ import annotations

import json

from openmemory.access.schemas import GrantCreate
from openmemory.services import Services
from tests.doors.mcp.test_sources import Call, Failure, Lines


async def test_a_project_is_remembered_from_checkpoint_to_pack(lines: Lines, failure: Failure) -> None:
    assert await lines("mem_get_initial_context", repo="shop") == ["Nothing is remembered here yet."]
    state = {"goal": "Replace the queue", "port": 6432}
    said = await lines(
        "mem_checkpoint", reason="The outbox replaces the queue.", state_json=json.dumps(state), repo="shop"
    )
    assert said == ["State saved: revision 1, 40 of 16,000 characters."]
    [why] = await lines(
        "mem_add_memory", title="Zoe chose the delays.", summary="One, two and four seconds.", tags="retry", repo="shop"
    )
    [port] = await lines("mem_add_memory", title="port=5432", repo="shop")
    first, second = why.removeprefix("ADD "), port.removeprefix("ADD ")
    assert await lines("mem_link_memories", from_id=first, rel="explains", to_id=second) == [
        f"linked: {first} explains {second}"
    ]
    assert (await lines("mem_link_memories", from_id=first, rel="explains", to_id=second))[0].startswith("exists")
    assert "cycle" in await failure("mem_link_memories", from_id=second, rel="explains", to_id=first)
    shown = await lines("mem_show", id=first)
    assert shown[0].endswith("Zoe chose the delays.")
    assert shown[-1] == f"-> explains {second}: port=5432"
    pack = await lines("mem_get_context", query="which port, and who chose the delays?", repo="shop", budget="900")
    assert pack[0] == "OpenMemory, project shop:"
    assert '{"goal":"Replace the queue","port":6432}' in pack
    assert any(line.endswith("port=5432 (overruled by the state)") for line in pack)
    told = await lines("mem_explain", query="which port, and who chose the delays?", repo="shop")
    assert told[0].startswith("in state ")
    begin = await lines("mem_get_initial_context", repo="shop")
    assert 'State of the project (revision 1): {"goal":"Replace the queue","port":6432}' in begin
    assert begin[-1] == "Call mem_get_context with your task."
    lost = await failure("mem_checkpoint", reason="Late.", state_json={"a": 1}, repo="shop", expected_revision=0)
    assert "revision 1, not 0" in lost
    assert "detail" in await failure("mem_get_context", query="x", detail="all")
    assert "state_json" in await failure("mem_checkpoint", reason="Bad.", state_json="{not json", repo="shop")


async def test_the_json_form_has_the_fields_of_mempack(call: Call, lines: Lines) -> None:
    await lines("mem_checkpoint", reason="It begins.", state_json={"goal": "tea"}, repo="r", workspace="w")
    arguments = {"query": "what is the goal?", "repo": "r", "workspace": "w"}
    pack = (await call("mem_get_context", **arguments, format="json"))["structuredContent"]
    assert {"version", "tool", "repo", "workspace", "search_meta", "state", "state_source", "matched_threads",
            "top_memories", "top_chunks", "link_trail", "rules", "budget"} <= pack.keys()  # fmt: skip
    repo = {"repo_id": "r/w", "git_root": "", "head": "", "branch": ""}
    assert (pack["repo"], pack["workspace"], pack["state"]) == (repo, "w", {"goal": "tea"})
    prompt = await call("mem_get_context", **arguments, format="prompt")
    assert prompt["content"][0]["text"].startswith("OpenMemory, project r/w:")


async def test_values_are_set_read_listed_searched_and_deleted(lines: Lines, failure: Failure) -> None:
    where = {"project_id": "shop", "topic": "stack", "key": "database"}
    assert await lines("memory_set", **where, value="PostgreSQL 16") == ["Memory set: stack/database"]
    assert await lines("memory_set", **where, value="PostgreSQL 17") == ["Memory set: stack/database"]
    assert await lines("memory_set", **where, value="PostgreSQL 17") == ["Memory unchanged: stack/database"]
    assert await lines("memory_get", **where) == ["stack/database: PostgreSQL 17"]
    await lines("memory_set", project_id="shop", topic="team", key="lead", value="Zoe")
    assert await lines("memory_list", project_id="shop") == ["stack/database: PostgreSQL 17", "team/lead: Zoe"]
    assert await lines("memory_list", project_id="shop", topic="team") == ["team/lead: Zoe"]
    found = await lines("memory_search", project_id="shop", query="stack/database", limit="1")
    assert found[0] == "stack/database: PostgreSQL 17"
    assert await lines("memory_delete", **where) == ["Deleted: stack/database"]
    assert await lines("memory_get", **where) == ["There is no value stack/database that you may read."]
    assert "Value not found" in await failure("memory_delete", **where)
    assert "value" in await failure("memory_set", **where)


async def test_projects_are_registered_listed_and_shown(lines: Lines, failure: Failure) -> None:
    assert await lines("project_list") == ["There are no projects that you may read."]
    assert await lines("project_register", id="shop", name="The shop", root_path="/src/shop") == [
        "Project registered: The shop (shop)"
    ]
    await lines("memory_set", project_id="shop", topic="team", key="lead", value="Zoe")
    assert await lines("project_list") == ["shop: The shop (1 memories, 0 conversations, 0 files, 0 documents)"]
    shown = await lines("project_status", project_id="shop")
    assert {"id: shop", "name: The shop", "memory_count: 1", "state: none"} <= {*shown}
    assert "Project not found" in await failure("project_status", project_id="other")


async def test_a_registration_that_is_hidden_looks_like_one_that_is_not_there(
    call: Call, services: Services, new_user: str
) -> None:
    await call("project_register", _app="cursor", id="old1", name="The secret shop", root_path="/secret")
    rule = {"effect": "deny", "app": "claude", "object_type": "app", "object": "cursor"}
    owner = await services.directory.caller(new_user, None, owner=True)
    await services.grants.create(owner, GrantCreate.model_validate(rule))
    taken, free = [repr(await call("project_register", id=name, name="Mine")) for name in ("old1", "new1")]
    assert taken.replace("old1", "new1") == free
    assert "Project registered: Mine (new1)" in free
    taken, free = [repr(await call("project_status", project_id=name)) for name in ("old1", "new1")]
    assert taken.replace("old1", "new1") == free
    for app, names in (("cursor", ["Mine", "The secret shop"]), ("claude", ["Mine", "Mine"])):
        listed = await services.projects.list(await services.directory.caller(new_user, app))
        assert [one.name for one in listed.projects] == names


async def test_a_note_is_changed(lines: Lines, failure: Failure) -> None:
    [added] = await lines("mem_add_memory", title="Old", summary="More.", tags=["a", "b"])
    id_ = added.removeprefix("ADD ")
    assert await lines("mem_update_memory", id=id_, title="New", tags_add="c", tags_remove=["a"]) == [f"UPDATE {id_}"]
    assert await lines("mem_show", id=id_) == [
        line for line in await lines("mem_show", id=id_) if line.endswith("New") or line.strip() == "More."
    ]
    assert await lines("mem_update_memory", id=id_, title="New") == [f"NONE {id_}"]
    assert "Memory not found" in await failure("mem_update_memory", id="0" * 8, title="x")

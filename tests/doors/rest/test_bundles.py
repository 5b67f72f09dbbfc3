"""Bundles over REST: a project is exported, and an import changes only what it brought."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.doors.rest.test_grants import GRANTS

PATH = "/api/v1/bundles"
COMMIT = "c" * 40


@pytest.fixture
def send(client: httpx.AsyncClient, new_user: str) -> Any:
    async def ask(method: str, path: str, status: int = 200, **fields: Any) -> Any:
        fields = {"user_id": new_user} | fields
        given = {"params": fields} if method in {"GET", "DELETE"} else {"json": fields}
        answer = await client.request(method, f"/api/v1/{path}", **given)
        assert answer.status_code == status, answer.text
        return answer.json()

    return ask


@pytest.fixture
async def shop(send: Any, new_user: str, remember: Any) -> dict[str, str]:
    """A project with memories, a value, a link and a state. Returns ids by name."""
    texts = {"retry": "Deliveries retry.\nFor a minute, because of restarts.", "three": "Restarts take three seconds."}
    metadata = {"tags": ["outbox"], "commit": COMMIT, "ticket": 7}
    ids = {"retry": (await remember(new_user, texts["retry"], namespace="shop", metadata=metadata, kind="note"))["id"]}
    ids["three"] = (await remember(new_user, texts["three"], namespace="shop"))["id"]
    await send("PUT", "values", namespace="shop", topic="team", key="lead", value="Zoe")
    await send("POST", "links", from_id=ids["three"], rel="explains", to_id=ids["retry"])
    await send("POST", "state/checkpoint", namespace="shop", state={"goal": "tea"}, reason="It begins.")
    return ids


@pytest.fixture
def bring(send: Any) -> Any:
    async def ask(bundle: Any, status: int = 200, **fields: Any) -> Any:
        return await send("POST", "bundles", status, **({"namespace": "copy", "bundle": bundle} | fields))

    return ask


def counts(done: Any) -> dict[str, int]:
    return {name: done[name] for name in ("imported", "updated", "unchanged", "deleted", "kept", "links") if done[name]}


async def test_a_bundle_holds_what_the_project_shares(send, shop):
    bundle = await send("GET", "bundles", namespace="shop")
    assert bundle == await send("GET", "bundles", namespace="shop")
    retry, three, lead, begins = bundle["memories"]
    assert (retry["source_id"], retry["title"], retry["summary"]) == (
        shop["retry"], "Deliveries retry.", "For a minute, because of restarts.",
    )  # fmt: skip
    assert (retry["tags"], retry["anchor_commit"], retry["metadata"]) == (["outbox"], COMMIT, {"ticket": 7})
    assert (three["title"], three["kind"], lead["key"], begins["kind"]) == (
        "Restarts take three seconds.", "memory", "team/lead", "checkpoint",
    )  # fmt: skip
    assert bundle["links"] == [{"from_id": shop["three"], "rel": "explains", "to_id": shop["retry"]}]
    assert bundle["state"] == {"goal": "tea"}
    manifest = bundle["manifest"]
    assert (manifest["source_namespace"], manifest["memory_count"], manifest["schema_version"]) == ("shop", 4, 1)
    assert (await send("GET", "bundles", 404, namespace="nowhere"))["error"] == "project_not_found"


async def test_an_import_makes_the_same_project_and_a_second_one_changes_nothing(send, shop, bring):
    bundle = await send("GET", "bundles", namespace="shop")
    done = await bring(bundle)
    assert (counts(done), done["state"]) == ({"imported": 4, "links": 1}, "saved")
    again = await bring(bundle)
    assert (counts(again), again["state"]) == ({"unchanged": 4}, "unchanged")
    copy = await send("GET", "bundles", namespace="copy")
    assert copy["manifest"]["source_repo_id"] != bundle["manifest"]["source_repo_id"]
    unnamed = [[one | {"source_id": ""} for one in each["memories"]] for each in (bundle, copy)]
    assert unnamed[0] == unnamed[1]
    assert (await send("GET", "values/team/lead", namespace="copy"))["value"] == "Zoe"
    assert len(copy["links"]) == 1
    # Back where it comes from, there is nothing to do either.
    assert counts(await bring(bundle, namespace="shop")) == {"unchanged": 4}


async def test_what_changed_is_updated_and_with_replace_what_is_gone_is_deleted(send, shop, bring, new_user, remember):
    bundle = await send("GET", "bundles", namespace="shop")
    await bring(bundle)
    mine = await remember(new_user, "I like tea.", namespace="copy")
    bundle["memories"][0]["summary"] = "For two minutes."
    gone = bundle["memories"].pop(1)
    bundle["state"] = {"goal": "coffee"}
    done = await bring(bundle)
    assert (counts(done), done["state"]) == ({"updated": 1, "unchanged": 2}, "kept")
    done = await bring(bundle, replace=True)
    assert (counts(done), done["state"]) == ({"unchanged": 3, "deleted": 1}, "saved")
    copy = await send("GET", "bundles", namespace="copy")
    titles = {one["title"] for one in copy["memories"]}
    assert gone["title"] not in titles
    assert "I like tea." in titles
    assert copy["state"] == {"goal": "coffee"}
    # Another source replaces nothing of this one, and the state that the project saved itself stays.
    await send("POST", "state/checkpoint", namespace="copy", state={"goal": "mine"}, reason="Mine.")
    other = {"manifest": {"source_repo_id": "elsewhere"}, "memories": [], "state": {"goal": "theirs"}}
    done = await bring(other, replace=True)
    assert (counts(done), done["state"]) == ({}, "kept")
    done = await bring(bundle, replace=True)
    assert (counts(done), done["state"]) == ({"unchanged": 3}, "kept")
    assert mine["id"] in {one["source_id"] for one in (await send("GET", "bundles", namespace="copy"))["memories"]}


async def test_a_value_of_the_project_itself_stays(send, shop, bring):
    await send("PUT", "values", namespace="copy", topic="team", key="lead", value="Ada")
    bundle = await send("GET", "bundles", namespace="shop")
    assert counts(await bring(bundle)) == {"imported": 3, "kept": 1, "links": 1}
    assert (await send("GET", "values/team/lead", namespace="copy"))["value"] == "Ada"


async def test_a_bundle_of_mempack_is_read(send, bring):
    manifest = {"schema_version": 1, "exported_at": "2026-06-01T10:00:00Z", "tool_version": "0.2.46",
                "source_repo_id": "r_1234abcd", "source_git_root": "shop", "workspace": "default",
                "memory_count": 1}  # fmt: skip
    memory = {"source_id": "M-1", "thread_id": "T-1", "title": "Retry", "summary": "Thrice.", "tags": ["a"],
              "entities": ["Zoe"], "anchor_commit": COMMIT, "created_at": "2026-05-01T10:00:00Z"}  # fmt: skip
    assert counts(await bring({"manifest": manifest, "memories": [memory]})) == {"imported": 1}
    [found] = (await send("GET", "bundles", namespace="copy"))["memories"]
    assert {name: found[name] for name in memory if name not in {"source_id", "created_at"}} == {
        name: value for name, value in memory.items() if name not in {"source_id", "created_at"}
    }
    assert found["created_at"].startswith("2026-05-01T10:00:00")


@pytest.mark.parametrize(
    ("memory", "named"),
    [
        ({"title": " "}, "memories[1].title"),
        ({"title": "x", "kind": "state"}, "memories[1].kind"),
        ({"title": "x", "kind": "keyed", "key": "a/b"}, "memories[1].key"),
        ({"title": "x", "importance": 7}, "memories[1].importance"),
        ({"title": "x", "source_id": "0"}, "memories[1].source_id"),
        ({"title": "x", "source_id": " "}, "memories[1].source_id"),
    ],
)
async def test_if_one_memory_is_refused_nothing_is_stored(send, bring, memory, named):
    memories = [{"source_id": "0", "title": "Fine."}, {"source_id": "1"} | memory]
    refused = await bring({"manifest": {"source_repo_id": "x"}, "memories": memories}, 422)
    assert named in refused["detail"]
    await send("GET", "bundles", 404, namespace="copy")
    refused = await bring({"manifest": {"source_repo_id": "x", "schema_version": 9}}, 422)
    assert "manifest.schema_version" in refused["detail"]


async def test_links_that_would_close_a_cycle_and_memories_that_have_expired_stay_out(send, bring):
    memories = [{"source_id": name, "title": f"Number {name}."} for name in "abc"]
    memories.append({"source_id": "old", "title": "Gone.", "expires_at": "2020-01-01T00:00:00Z"})
    pairs = ("ab", "bc", "ca", "aa")
    links = [{"from_id": one, "rel": "Leads To", "to_id": other} for one, other in pairs]
    links.append({"from_id": "a", "rel": "leads_to", "to_id": "old"})
    done = await bring({"manifest": {"source_repo_id": "x"}, "memories": memories, "links": links})
    assert counts(done) == {"imported": 3, "links": 2}
    assert {one["rel"] for one in (await send("GET", "bundles", namespace="copy"))["links"]} == {"leads_to"}


async def test_an_app_shares_what_it_may_read(client, send, shop, new_user, remember):
    await remember(new_user, "I am here.", app="cursor")
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "memory", "object": shop["retry"]}
    assert (await client.post(GRANTS, json=rule)).is_success
    bundle = await send("GET", "bundles", namespace="shop", app="cursor")
    assert shop["retry"] not in {one["source_id"] for one in bundle["memories"]}
    assert bundle["links"] == []

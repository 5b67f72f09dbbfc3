"""Anchors over REST: the commits of memories, what a client reports of them, and what packs leave out."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tests.doors.rest.test_grants import GRANTS

PATH = "/api/v1/anchors"
KEPT, DROPPED, HEAD, LATER = ("1" * 40, "2" * 40, "a" * 40, "b" * 40)
PORT, WORKER = "Deliveries go over port 6432.", "The deliveries have one worker."


@pytest.fixture
async def ids(new_user: str, remember: Any) -> dict[str, str]:
    """A project whose memories belong to commits. Returns their ids by name."""
    made = {}
    for name, text, commit in (("kept", PORT, KEPT), ("dropped", WORKER, DROPPED), ("free", "Deliveries retry.", None)):
        metadata = {"commit": commit} if commit else {}
        made[name] = (await remember(new_user, text, namespace="shop", metadata=metadata))["id"]
    return made


@pytest.fixture
def report(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(status: int = 200, **fields: Any) -> Any:
        body = {"user_id": new_user, "namespace": "shop", "head": HEAD} | fields
        answer = await client.post(PATH, json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return send


@pytest.fixture
def anchors(client: httpx.AsyncClient, new_user: str) -> Any:
    async def ask(head: str = HEAD, **fields: Any) -> dict[str, Any]:
        params = {"user_id": new_user, "namespace": "shop", "head": head} | fields
        answer = await client.get(PATH, params=params)
        assert answer.status_code == 200, answer.text
        return {one["commit"]: one["reachable"] for one in answer.json()["anchors"]}

    return ask


@pytest.fixture
def shown(client: httpx.AsyncClient, new_user: str) -> Any:
    async def ask(**fields: Any) -> Any:
        body = {"user_id": new_user, "namespace": "shop", "query": "what about deliveries?"} | fields
        answer = await client.post("/api/v1/context", json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return ask


def _ids(pack: Any) -> set[str]:
    return {one["id"] for one in pack["memories"]}


async def test_a_memory_of_a_dropped_commit_leaves_packs_and_comes_back(ids, report, anchors, shown):
    assert await anchors() == {KEPT: None, DROPPED: None}
    first = await shown(head=HEAD)
    assert _ids(first) == set(ids.values())
    assert "2 of the items belong to commits" in first["note"]
    told = await report(reachable=[KEPT], orphaned=[DROPPED])
    assert (told["reachable"], told["orphaned"]) == (1, 1)
    assert await anchors() == {KEPT: True, DROPPED: False}

    pack = await shown(head=HEAD)
    assert _ids(pack) == {ids["kept"], ids["free"]}
    assert "note" not in pack
    [dropped] = pack["dropped"]
    assert (dropped["id"], dropped["why"]) == (ids["dropped"], "its commit is not in the history")
    assert WORKER not in pack["text"].partition("Left out:")[0]
    assert {one["id"]: one.get("commit") for one in pack["memories"]} == {ids["kept"]: KEPT, ids["free"]: None}
    assert _ids(await shown(head=HEAD, include_orphans=True)) == set(ids.values())
    assert pack == await shown(head=HEAD)

    await report(head=LATER, reachable=[KEPT, DROPPED])  # the commit is back
    assert _ids(await shown(head=LATER)) == set(ids.values())
    assert _ids(await shown(head=HEAD)) == {ids["kept"], ids["free"]}


async def test_a_message_of_a_dropped_commit_leaves_packs(client, new_user, anchors, report, shown):
    said = [
        {"role": "user", "content": "Deliveries go over port 6432 now.", "metadata": {"commit": DROPPED}},
        {"role": "user", "content": "Deliveries are tried again."},
    ]
    body = {"user_id": new_user, "namespace": "shop", "messages": said, "infer": False}
    assert (await client.post("/api/v1/threads/t/messages", json=body)).status_code == 200
    assert await anchors() == {DROPPED: None}
    await report(orphaned=[DROPPED])
    pack = await shown(head=HEAD)
    assert [one["text"] for one in pack["passages"]] == [said[1]["content"]]
    [dropped] = pack["dropped"]
    assert (dropped["kind"], dropped["why"]) == ("passage", "its commit is not in the history")
    assert len((await shown(head=HEAD, include_orphans=True))["passages"]) == 2


async def test_a_brief_leaves_the_memories_of_dropped_commits_out(client, new_user, ids, report):
    async def brief(**fields: Any) -> str:
        body = {"user_id": new_user, "namespace": "shop"} | fields
        answer = await client.post("/api/v1/brief", json=body)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["text"])

    await report(orphaned=[DROPPED])
    assert WORKER in await brief()
    shown = await brief(head=HEAD, budget=2_000)
    assert (WORKER in shown, PORT in shown) == (False, True)
    assert WORKER not in await brief(head=HEAD, query="how many workers have the deliveries?", min_score=0)
    assert WORKER in await brief(head=LATER)
    assert (await client.post("/api/v1/brief", json={"namespace": "shop", "head": "main"})).status_code == 422


async def test_fewer_results_may_be_allowed_than_a_brief_or_a_pack_looks_for(
    client, new_user, ids, report, shown, services, monkeypatch
):
    monkeypatch.setitem(vars(services.settings.search), "max_limit", 3)
    await report(orphaned=[DROPPED])
    assert _ids(await shown(head=HEAD)) == {ids["kept"], ids["free"]}
    body = {"user_id": new_user, "namespace": "shop", "head": HEAD}
    for more in ({}, {"query": "which port have the deliveries?"}):
        answer = await client.post("/api/v1/brief", json=body | more)
        assert answer.status_code == 200, answer.text
        assert PORT in answer.json()["text"]


async def test_without_a_head_it_is_the_one_of_the_project(client, new_user, ids, report, shown):
    await report(orphaned=[DROPPED])
    assert _ids(await shown()) == set(ids.values())
    body = {"user_id": new_user, "namespace": "shop", "name": "Shop", "head": HEAD}
    assert (await client.post("/api/v1/projects", json=body)).status_code == 200
    assert _ids(await shown()) == {ids["kept"], ids["free"]}
    assert _ids(await shown(head=LATER)) == set(ids.values())


async def test_the_commit_of_a_hidden_registration_counts_for_nothing(client, new_user, ids, report, shown):
    await report(orphaned=[DROPPED])

    async def register(app: str, head: str) -> None:
        body = {"user_id": new_user, "namespace": "shop", "head": head, "app": app}
        assert (await client.post("/api/v1/projects", json=body)).status_code == 200

    async def brief() -> str:
        body = {"user_id": new_user, "namespace": "shop", "app": "claude", "budget": 2_000}
        return str((await client.post("/api/v1/brief", json=body)).json()["text"])

    await register("cursor", HEAD)
    assert _ids(await shown(app="claude")) == {ids["kept"], ids["free"]}
    assert WORKER not in await brief()
    rule = {"user_id": new_user, "effect": "deny", "app": "claude", "object_type": "app", "object": "cursor"}
    assert (await client.post(GRANTS, json=rule)).status_code == 201
    assert _ids(await shown(app="claude")) == set(ids.values())
    assert WORKER in await brief()
    await register("claude", HEAD)
    await register("cursor", LATER)
    assert _ids(await shown(app="claude")) == {ids["kept"], ids["free"]}
    assert WORKER not in await brief()


async def test_others_take_the_places_of_orphans(new_user, remember, report, shown):
    for number in range(12):
        text = f"Deliveries number {number} are about the deliveries."
        await remember(new_user, text, namespace="shop", metadata={"commit": DROPPED})
    kept = [await remember(new_user, f"Old {name} of deliveries.", namespace="shop") for name in ("logs", "notes")]
    await report(orphaned=[DROPPED])
    assert _ids(await shown(head=HEAD, clusters=False)) == {one["id"] for one in kept}


async def test_only_the_commits_of_memories_that_may_be_read_are_told_and_kept(
    client, new_user, ids, report, anchors, remember
):
    rule = {"user_id": new_user, "effect": "deny", "app": "cursor", "object_type": "memory", "object": ids["dropped"]}
    await remember(new_user, "I am here.", app="cursor")
    assert (await client.post(GRANTS, json=rule)).status_code == 201
    assert await anchors(app="cursor") == {KEPT: None}
    told = await report(app="cursor", reachable=[KEPT, "3" * 40], orphaned=[DROPPED])
    assert (told["reachable"], told["orphaned"]) == (1, 0)
    assert await anchors() == {KEPT: True, DROPPED: None}
    assert await anchors(namespace="other") == {}


async def test_the_last_checkouts_are_remembered(ids, report, anchors):
    heads = [f"{number:040x}" for number in range(12)]
    for head in heads:
        await report(head=head, reachable=[KEPT])
    assert [(await anchors(head))[KEPT] for head in heads] == [None] * 4 + [True] * 8


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"head": "main"}, "head"),
        ({"head": "a" * 41}, "head"),
        ({"reachable": ["x"]}, "reachable"),
        ({"orphaned": ["abc1234"]}, "orphaned"),
        ({"namespace": " "}, "namespace"),
    ],
)
async def test_what_is_no_commit_is_refused(report, ids, fields, named):
    assert named in (await report(422, **fields))["detail"]
    assert ids


async def test_a_metadata_field_that_is_no_commit_is_no_anchor(new_user, remember, anchors, shown):
    one = await remember(new_user, "Deliveries are green.", namespace="shop", metadata={"commit": "yes, always"})
    two = await remember(new_user, "Deliveries are blue.", namespace="shop", metadata={"commit": ["a" * 40]})
    assert await anchors() == {}
    assert _ids(await shown(head=HEAD, clusters=False)) == {one["id"], two["id"]}

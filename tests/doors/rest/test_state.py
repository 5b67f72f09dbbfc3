"""The state of a project over REST: checkpoints, revisions and history. No search finds it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from sqlalchemy import text

PATH = "/api/v1/state"
STATE = {"goal": "Replace the queue", "database": {"host": "db.internal", "port": 5432}, "done": []}


@pytest.fixture
def save(client: httpx.AsyncClient, new_user: str) -> Any:
    async def send(state: Any = STATE, reason: str = "It begins.", *, status: int = 200, **fields: Any) -> Any:
        body = {"user_id": new_user, "namespace": "shop", "state": state, "reason": reason} | fields
        answer = await client.post(f"{PATH}/checkpoint", json=body)
        assert answer.status_code == status, answer.text
        return answer.json()

    return send


@pytest.fixture
def read(client: httpx.AsyncClient, new_user: str) -> Any:
    async def ask(path: str = "", *, status: int = 200, **params: str) -> Any:
        params = {"user_id": new_user, "namespace": "shop"} | params
        answer = await client.get(PATH + path, params=params)
        assert answer.status_code == status, answer.text
        return answer.json()

    return ask


async def test_a_checkpoint_saves_the_state_and_remembers_the_reason(client, new_user, save, read):
    saved = await save(expected_revision=0)
    assert (saved["revision"], saved["event"], saved["namespace"]) == (1, "ADD", "shop")
    changed = {"goal": "Replace the queue", "database": {"host": "db.internal"}, "done": ["plan"]}
    again = await save(changed, "The plan is done.", expected_revision=1)
    assert (again["id"], again["revision"], again["event"]) == (saved["id"], 2, "UPDATE")
    found = await read()
    assert (found["state"], found["revision"], found["reason"]) == (changed, 2, "The plan is done.")
    assert found["size"] < found["limit"]
    history = await read("/history")
    assert [(one["revision"], one["reason"]) for one in history["revisions"]] == [
        (2, "The plan is done."), (1, "It begins."),
    ]  # fmt: skip
    assert [(leaf["path"], leaf["old"], leaf["new"]) for leaf in history["revisions"][0]["changes"]] == [
        ("database.port", 5432, None), ("done", [], ["plan"]),
    ]  # fmt: skip
    told = (await client.get(f"/api/v1/memories/{again['memory_id']}", params={"user_id": new_user})).json()
    assert told["text"] == "The plan is done."
    assert (await save(changed, "The plan is done."))["event"] == "NONE"


async def test_an_expected_revision_keeps_a_change_from_being_lost(save, read):
    await save()
    lost = await save({"goal": "another"}, "Too late.", expected_revision=0, status=409)
    assert lost["error"] == "state_changed"
    assert "revision 1" in lost["detail"]
    assert (await read())["state"] == STATE


@pytest.mark.slow
async def test_many_checkpoints_at_once_make_a_linear_history(save, read):
    await asyncio.gather(*(save({"number": number}, f"Step {number}.") for number in range(32)))
    history = await read("/history")
    assert [one["revision"] for one in history["revisions"]] == list(range(32, 0, -1))
    numbers = [leaf["new"] for one in history["revisions"] for leaf in one["changes"] if leaf["path"] == "number"]
    assert sorted(numbers) == list(range(32))


async def test_of_many_that_expect_one_revision_one_wins(client, new_user, save):
    async def one(number: int) -> int:
        body = {"user_id": new_user, "namespace": "shop", "state": {"n": number}, "reason": f"{number}",
                "expected_revision": 1}  # fmt: skip
        return (await client.post(f"{PATH}/checkpoint", json=body)).status_code

    await save()
    codes = await asyncio.gather(*(one(number) for number in range(16)))
    assert sorted(codes) == [200] + [409] * 15


async def test_no_search_finds_the_state(client, new_user, save, services):
    await save({"secret_plan": "the zebra dances at midnight"}, "It begins.")
    await services.outbox_delivery.drain()
    for query in ("zebra dances at midnight", "what do you know about me?", "secret_plan"):
        found = await client.post("/api/v1/memories/search", json={"user_id": new_user, "query": query})
        assert "zebra" not in str(found.json()["results"])
    async with services.database.transaction() as tx:
        words = await tx.scalar(text("SELECT max(length(words)) FROM memories WHERE kind = 'state'"))
    assert words == 0


async def test_a_state_that_a_rule_hides_is_neither_told_of_nor_replaced(client, new_user, save, read):
    await save(app="cursor")
    rule = {"user_id": new_user, "app": "claude", "effect": "deny", "object_type": "app", "object": "cursor"}
    assert (await client.post("/api/v1/grants", json=rule)).status_code < 300
    assert (await read(app="claude", status=404))["error"] == "state_not_found"
    saved = await save({"mine": True}, app="claude", expected_revision=0)
    free = await save({"mine": True}, app="claude", expected_revision=0, namespace="free")
    assert {name for name in saved if saved[name] != free[name]} == {"id", "namespace", "memory_id"}
    assert (await read(app="claude"))["state"] == {"mine": True}
    assert (await read(app="cursor"))["state"] == (await read())["state"] == STATE


async def test_of_two_states_the_later_one_counts(client, new_user, save, read):
    first = await save()
    whose = {"user_id": new_user}
    assert (await client.request("DELETE", "/api/v1/memories", json=whose | {"memory_ids": [first["id"]]})).is_success
    await save({"second": True}, "Again.")
    restored = await client.post("/api/v1/memories/actions/restore", json=whose | {"memory_ids": [first["id"]]})
    assert restored.is_success, restored.text
    assert (await read())["state"] == STATE
    last = await save({"third": True}, "Once more.")
    assert last["id"] == first["id"]
    query = whose | {"namespace": "shop", "kind": "state"}
    listed = (await client.post("/api/v1/memories/filter", json={"user_id": new_user})).json()
    assert sum('"third"' in one["content"] or '"second"' in one["content"] for one in listed["items"]) == 1, query


async def test_a_state_that_is_no_json_any_more_is_told(client, new_user, save, read):
    saved = await save()
    change = {"user_id": new_user, "memory_content": "not JSON"}
    assert (await client.put(f"/api/v1/memories/{saved['id']}", json=change)).is_success
    found = await read()
    assert found["state"] is None
    assert "cannot be read as JSON" in found["note"]
    await save({"whole": True}, "Mended.")
    assert (await read())["state"] == {"whole": True}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"state": {"token": "ghp_" + "a1B2c3D4e5F6" * 3}}, "state"),
        ({"state": ["a", "list"]}, "state"),
        ({"state": {"nul": "\x00"}}, "state"),
        ({"reason": " "}, "reason"),
        ({"namespace": ""}, "namespace"),
        ({"expected_revision": -1}, "expected_revision"),
    ],
)
async def test_bad_input_is_refused(save, read, fields, field):
    refused = await save(**({"state": STATE} | fields), status=422)
    assert refused["detail"].startswith(field) or field in str(refused), refused
    await read(status=404)


async def test_a_state_has_a_limit(save, read):
    refused = await save({"long": "x" * 20_000}, status=413)
    assert refused["detail"] == "state: has 20,011 characters; the limit is 16,000 (limits.text)"
    await read(status=404)


async def test_its_kinds_are_reserved(client, new_user):
    for kind, hint in (("state", "checkpoint"), ("keyed", "topic")):
        answer = await client.post("/api/v1/memories", json={"user_id": new_user, "text": "x", "kind": kind})
        assert (answer.status_code, answer.json()["error"]) == (422, "kind_reserved")
        assert hint in answer.json()["detail"]

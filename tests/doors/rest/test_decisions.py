"""Facts that disagree and near duplicates are listed, decided and undone over REST. The feed and daily statistics."""

from __future__ import annotations

import httpx
import pytest

M = "/api/v1/memories"


@pytest.fixture
def stored(client: httpx.AsyncClient, new_user: str, services):
    async def store(*texts: str) -> list[str]:
        body = {"user_id": new_user, "memories": [{"text": text} for text in texts]}
        answer = await client.post(f"{M}/batch", json=body)
        assert answer.is_success, answer.text
        await services.outbox_delivery.drain()
        return [one["id"] for one in answer.json()["results"]]

    return store


async def _texts(client: httpx.AsyncClient, user: str) -> set[str]:
    return {one["content"] for one in (await client.get(M, params={"user_id": user})).json()["items"]}


async def test_facts_that_disagree_are_listed_decided_and_undone(client, new_user, stored) -> None:
    one, two, three = await stored("port=1", "port=2", "port=3|host=db")
    whose = {"user_id": new_user}
    [conflict] = (await client.get("/api/v1/conflicts", params=whose)).json()["items"]
    assert (conflict["key"], conflict["namespace"], conflict["more"]) == ("port", "default", 0)
    assert {(fact["value"], fact["alone"], fact["memory"]["id"]) for fact in conflict["facts"]} == {
        ("1", True, one), ("2", True, two), ("3", False, three),
    }  # fmt: skip
    decision = whose | {"key": "port", "keep": two[:13], "others": [one[:13], three]}
    decided = (await client.post("/api/v1/conflicts", json=decision)).json()
    assert decided["message"] == "Kept port = 2: 1 superseded, 1 corrected"
    assert await _texts(client, new_user) == {"port=2", "port=2 | host=db"}
    assert (await client.get("/api/v1/conflicts", params=whose)).json()["total"] == 0
    undo = whose | {"action": decided["action"]}
    assert (await client.post(f"{M}/actions/undo", json=undo)).json() == {"restored": 2, "kept": 0}
    assert await _texts(client, new_user) == {"port=1", "port=2", "port=3|host=db"}
    assert (await client.post(f"{M}/actions/undo", json=undo)).status_code == 404


async def test_of_two_near_duplicates_one_or_both_are_kept(client, new_user, stored) -> None:
    older, newer = await stored("Alice drinks green tea every morning.", "Alice drinks green tea every single morning.")
    whose = {"user_id": new_user}
    found = (await client.get("/api/v1/duplicates", params=whose)).json()
    [pair] = found["items"]
    assert {pair["newer"]["id"], pair["older"]["id"]} == {older, newer}
    assert (found["looked_at"], found["next"], found["note"]) == (2, None, None)
    seen = {"newer": pair["newer"]["id"], "older": pair["older"]["id"], "newer_revision": 7}
    refused = await client.post("/api/v1/duplicates", json=whose | seen | {"keep": "newer"})
    assert (refused.status_code, refused.json()["error"]) == (409, "changed_since")
    seen |= {"newer_revision": pair["newer"]["revision"]}
    decided = (await client.post("/api/v1/duplicates", json=whose | seen | {"keep": "older"})).json()
    assert decided["message"] == "Kept the older memory"
    assert await _texts(client, new_user) == {pair["older"]["content"]}
    await client.post(f"{M}/actions/undo", json=whose | {"action": decided["action"]})
    assert (await client.post("/api/v1/duplicates", json=whose | seen | {"keep": "both"})).json()["action"] is None
    assert (await client.get("/api/v1/duplicates", params=whose)).json()["items"] == []
    assert len(await _texts(client, new_user)) == 2


@pytest.mark.parametrize("after", ["x", "2026-01-01T00:00:00.000000_", "_" * 300])
async def test_a_place_that_is_none_is_refused(client, new_user, stored, after) -> None:
    await stored("Alice drinks tea.")
    answer = await client.get("/api/v1/duplicates", params={"user_id": new_user, "after": after})
    assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (422, "after")


async def test_what_apps_wrote_and_read_is_listed_and_counted(client, new_user, stored) -> None:
    await stored("Alice drinks tea.", "Alice rides a bike.")
    whose = {"user_id": new_user}
    await client.post(f"{M}/search", json=whose | {"query": "tea", "app": "claude"})
    [written] = (await client.get("/api/v1/feed", params=whose)).json()["entries"]
    assert (written["event"], written["count"]) == ("memory.add", 2)
    [read] = (await client.get("/api/v1/feed", params=whose | {"what": "read"})).json()["entries"]
    assert (read["event"], read["app_name"]) == ("memory.search", "claude")
    days = (await client.get("/api/v1/stats/daily", params=whose | {"days": 2})).json()["days"]
    assert {day["app_name"]: day["written"] for day in days} == {"openmemory": 2, "claude": 0}
    assert sum(day["accessed"] for day in days) >= 1
    assert (await client.get("/api/v1/stats/daily", params=whose | {"days": 0})).status_code == 422

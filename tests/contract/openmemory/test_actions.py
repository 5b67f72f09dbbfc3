"""`/api/v1/memories/actions`: archiving, pausing, resuming."""

from __future__ import annotations

from uuid import uuid4

import pytest

ACTIONS = "/api/v1/memories/actions"


async def states(api, user: str) -> dict[str, str]:
    params = {"user_id": user, "state": "active,paused,archived,deleted"}
    page = (await api.get("/api/v1/memories/", params=params)).json()
    return {item["content"]: item["state"] for item in page["items"]}


@pytest.mark.parametrize("slash", ["", "/"])
async def test_an_array_of_ids_is_archived_under_the_internal_id_of_the_user(api, new_user, remember, slash):
    rows = [await remember(text) for text in ("one", "two", "three")]
    ids = [row["id"] for row in rows[:2]]
    answer = await api.post(f"{ACTIONS}/archive{slash}", params={"user_id": rows[0]["user_id"]}, json=ids)
    assert (answer.status_code, answer.json()) == (200, {"message": "Successfully archived 2 memories"})
    assert await states(api, new_user) == {"one": "archived", "two": "archived", "three": "active"}


@pytest.mark.parametrize("slash", ["", "/"])
async def test_listed_memories_are_paused(api, new_user, remember, slash):
    rows = [await remember(text) for text in ("one", "two")]
    body = {"user_id": new_user, "memory_ids": [rows[0]["id"]]}
    answer = await api.post(f"{ACTIONS}/pause{slash}", json=body)
    assert (answer.status_code, answer.json()) == (200, {"message": "Successfully paused 1 memories"})
    assert await states(api, new_user) == {"one": "paused", "two": "active"}


@pytest.mark.parametrize("state", ["active", "paused", "archived", "deleted"])
async def test_the_page_brings_listed_memories_into_a_state(api, new_user, remember, state):
    row = await remember("one")
    body = {"user_id": new_user, "memory_ids": [row["id"]], "all_for_app": True, "state": state}
    answer = await api.post(f"{ACTIONS}/pause", json=body)
    assert (answer.status_code, answer.json()) == (200, {"message": "Successfully paused all memories"})
    assert await states(api, new_user) == {"one": state}


async def test_the_page_resumes_what_is_paused_and_restores_what_is_archived(api, new_user, remember, bring):
    rows = {state: await remember(state) for state in ("paused", "archived")}
    for state, row in rows.items():
        await bring(state, row)
    await bring("active", *rows.values())
    assert await states(api, new_user) == {"paused": "active", "archived": "active"}


async def test_all_memories_of_an_app_are_paused(api, new_user, remember):
    row = await remember("by claude", app="claude")
    await remember("by cursor", app="cursor")
    answer = await api.post(f"{ACTIONS}/pause", json={"user_id": new_user, "app_id": row["app_id"]})
    assert answer.json() == {"message": f"Successfully paused all memories for app {row['app_id']}"}
    assert await states(api, new_user) == {"by claude": "paused", "by cursor": "active"}


async def test_a_global_pause_stays_within_the_user(api, new_user, remember):
    """OpenMemory's paused the memories of everybody."""
    other = f"{new_user}-other"
    await remember("theirs", user=other)
    await remember("mine")
    answer = await api.post(f"{ACTIONS}/pause", json={"user_id": new_user, "global_pause": True})
    assert answer.json() == {"message": "Successfully paused all memories"}
    assert await states(api, new_user) == {"mine": "paused"}
    assert await states(api, other) == {"theirs": "active"}


async def test_a_pause_of_categories_stays_within_the_user(api, new_user, remember):
    other = f"{new_user}-other"
    await remember("theirs", user=other, categories=["red"])
    await remember("red", categories=["red"])
    await remember("blue", categories=["blue"])
    found = (await api.get("/api/v1/memories/categories", params={"user_id": new_user})).json()["categories"]
    ids = [category["id"] for category in found if category["name"] == "red"]
    answer = await api.post(f"{ACTIONS}/pause", json={"user_id": new_user, "category_ids": ids})
    assert answer.json() == {"message": "Successfully paused memories in 1 categories"}
    assert await states(api, new_user) == {"red": "paused", "blue": "active"}
    assert await states(api, other) == {"theirs": "active"}


@pytest.mark.parametrize("more", [{}, {"all_for_app": True}])
async def test_a_pause_of_listed_memories_stays_within_the_user(api, new_user, remember, more):
    other = f"{new_user}-other"
    theirs = await remember("theirs", user=other)
    await remember("mine")
    body = {"user_id": new_user, "memory_ids": [theirs["id"]]} | more
    answer = await api.post(f"{ACTIONS}/pause", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")
    assert await states(api, other) == {"theirs": "active"}


async def test_the_first_condition_decides(api, new_user, remember):
    row = await remember("by claude", app="claude")
    await remember("by cursor", app="cursor")
    body = {"user_id": new_user, "app_id": row["app_id"], "memory_ids": [row["id"]], "global_pause": True}
    answer = await api.post(f"{ACTIONS}/pause", json=body)
    assert answer.json() == {"message": "Successfully paused all memories"}
    assert await states(api, new_user) == {"by claude": "paused", "by cursor": "paused"}


@pytest.mark.parametrize("body", [{}, {"all_for_app": True}, {"memory_ids": []}, {"state": "active"}])
async def test_a_pause_of_nothing_is_refused(api, new_user, remember, body):
    await remember("one")
    answer = await api.post(f"{ACTIONS}/pause", json={"user_id": new_user} | body)
    assert (answer.status_code, answer.json()["detail"]) == (400, "Invalid pause request parameters")


@pytest.mark.parametrize("wrong", [{"state": "asleep"}, {"memory_ids": ["x"]}])
async def test_what_is_no_state_or_id_is_refused(api, new_user, remember, wrong):
    row = await remember("one")
    answer = await api.post(f"{ACTIONS}/pause", json={"user_id": new_user, "memory_ids": [row["id"]]} | wrong)
    assert answer.status_code == 422


async def test_an_unknown_user_pauses_nothing(api, new_user):
    answer = await api.post(f"{ACTIONS}/pause", json={"user_id": new_user, "memory_ids": [str(uuid4())]})
    assert (answer.status_code, answer.json()["detail"]) == (404, "User not found")


async def test_none_of_no_memories_is_deleted_or_archived(api, new_user, remember):
    """Scripts send the list that they found, and it may be empty."""
    row = await remember("one")
    gone = await api.request("DELETE", "/api/v1/memories/", json={"user_id": new_user, "memory_ids": []})
    assert (gone.status_code, gone.json()) == (200, {"message": "Successfully deleted 0 memories"})
    path = "/api/v1/memories/actions/archive"
    archived = await api.post(path, params={"user_id": row["user_id"]}, json=[])
    assert (archived.status_code, archived.json()) == (200, {"message": "Successfully archived 0 memories"})


async def test_pausing_takes_null_for_what_is_left_out(api, new_user, remember):
    row = await remember("one")
    nothing = dict.fromkeys(("global_pause", "all_for_app", "app_id", "category_ids", "state"))
    body = {"user_id": new_user, "memory_ids": [row["id"]]} | nothing
    answer = await api.post("/api/v1/memories/actions/pause", json=body)
    assert (answer.status_code, answer.json()) == (200, {"message": "Successfully paused 1 memories"})

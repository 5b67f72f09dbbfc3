from __future__ import annotations

from uuid import uuid4

import pytest

from openmemory.errors import NotFound

ACTIONS = "/api/v1/memories/actions"


async def states(client, user: str) -> dict[str, str]:
    params = {"user_id": user, "state": "active,paused,archived,deleted"}
    answer = await client.get("/api/v1/memories", params=params)
    return {item["content"]: item["state"] for item in answer.json()["items"]}


async def test_a_list_of_ids_is_archived_under_the_users_internal_id(client, new_user, remember):
    row = await remember(new_user, "one")
    answer = await client.post(f"{ACTIONS}/archive", params={"user_id": row["user_id"]}, json=[row["id"]])
    assert (answer.status_code, answer.json()) == (200, {"message": "Successfully archived 1 memories"})
    assert await states(client, new_user) == {"one": "archived"}


async def test_a_list_of_ids_is_archived_under_the_users_name(client, new_user, remember):
    row = await remember(new_user, "one")
    answer = await client.post(f"{ACTIONS}/archive", params={"user_id": new_user}, json=[row["id"]])
    assert answer.json() == {"message": "Successfully archived 1 memories"}


async def test_an_object_is_archived_too(client, new_user, remember):
    row = await remember(new_user, "one")
    answer = await client.post(f"{ACTIONS}/archive", json={"memory_ids": [row["id"]], "user_id": new_user})
    assert answer.json() == {"message": "Successfully archived 1 memories"}


@pytest.mark.parametrize(
    ("body", "params", "status", "detail"),
    [
        ([str(uuid4())], {"user_id": str(uuid4())}, 404, "User not found"),
        (["x"], {"user_id": "y"}, 422, "body[0]: input should be a valid UUID"),
        ({"user_id": "y", "memory_ids": ["x"]}, {}, 422, "memory_ids[0]: input should be a valid UUID"),
        ({"user_id": "y"}, {}, 422, "memory_ids: is required"),
        ("text", {}, 422, "body: "),
    ],
)
async def test_what_cannot_be_archived_is_refused_in_words(client, body, params, status, detail):
    answer = await client.post(f"{ACTIONS}/archive", params=params, json=body)
    assert answer.status_code == status
    assert answer.json()["detail"].startswith(detail)


async def test_pausing_some_says_how_many(client, new_user, remember):
    rows = [await remember(new_user, text) for text in ("one", "two", "three")]
    body = {"user_id": new_user, "memory_ids": [row["id"] for row in rows[:2]] * 2}
    answer = await client.post(f"{ACTIONS}/pause", json=body)
    assert answer.json() == {"message": "Successfully paused 2 memories"}
    assert await states(client, new_user) == {"one": "paused", "two": "paused", "three": "active"}


@pytest.mark.parametrize("state", ["active", "paused", "archived", "deleted"])
async def test_the_page_brings_memories_into_any_state(client, new_user, remember, state):
    row = await remember(new_user, "one")
    body = {"user_id": new_user, "memory_ids": [row["id"], str(uuid4())], "all_for_app": True, "state": state}
    answer = await client.post(f"{ACTIONS}/pause", json=body)
    assert answer.json() == {"message": "Successfully paused all memories"}
    assert await states(client, new_user) == {"one": state}


async def test_a_global_pause_stays_within_the_user(client, new_user, remember):
    other = f"{new_user}-other"
    await remember(other, "theirs")
    archived = await remember(new_user, "archived")
    await client.post(f"{ACTIONS}/archive", json={"memory_ids": [archived["id"]], "user_id": new_user})
    await remember(new_user, "one")
    answer = await client.post(f"{ACTIONS}/pause", json={"user_id": new_user, "global_pause": True})
    assert answer.json() == {"message": "Successfully paused all memories"}
    assert await states(client, new_user) == {"one": "paused", "archived": "archived"}
    assert await states(client, other) == {"theirs": "active"}


async def test_all_memories_of_an_app_are_paused(client, new_user, remember):
    row = await remember(new_user, "by claude", app="claude")
    await remember(new_user, "by cursor", app="cursor")
    answer = await client.post(f"{ACTIONS}/pause", json={"user_id": new_user, "app_id": row["app_id"]})
    assert answer.json() == {"message": f"Successfully paused all memories for app {row['app_id']}"}
    assert await states(client, new_user) == {"by claude": "paused", "by cursor": "active"}


async def test_a_category_is_paused_within_the_user(client, new_user, remember, services):
    other = f"{new_user}-other"
    category = f"category-{new_user}"
    await remember(new_user, "filed", categories=[category])
    await remember(new_user, "not filed")
    await remember(other, "theirs", categories=[category])
    async with services.database.statement() as tx:
        from sqlalchemy import select

        from openmemory.memories.models import Category

        category_id = await tx.scalar(select(Category.id).where(Category.name == category))
    answer = await client.post(f"{ACTIONS}/pause", json={"user_id": new_user, "category_ids": [str(category_id)]})
    assert answer.json() == {"message": "Successfully paused memories in 1 categories"}
    assert await states(client, new_user) == {"filed": "paused", "not filed": "active"}
    assert await states(client, other) == {"theirs": "active"}


async def test_somebody_elses_memory_cannot_be_paused(client, new_user, remember):
    row = await remember(f"{new_user}-other", "theirs")
    await remember(new_user, "mine")
    for more in ({}, {"all_for_app": True}):
        answer = await client.post(f"{ACTIONS}/pause", json={"user_id": new_user, "memory_ids": [row["id"]]} | more)
        assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")
    assert await states(client, f"{new_user}-other") == {"theirs": "active"}


async def test_a_pause_of_nothing_is_refused_as_openmemory_did(client, new_user, remember):
    await remember(new_user, "one")
    answer = await client.post(f"{ACTIONS}/pause", json={"user_id": new_user})
    assert (answer.status_code, answer.json()["detail"]) == (400, "Invalid pause request parameters")


async def test_a_deleted_memory_is_restored(client, new_user, remember):
    row = await remember(new_user, "one")
    body = {"memory_ids": [row["id"]], "user_id": new_user}
    await client.request("DELETE", "/api/v1/memories", json=body)
    refused = await client.post(f"{ACTIONS}/archive", json=body)
    assert (refused.status_code, refused.json()["error"]) == (409, "transition_not_allowed")
    assert (await client.post(f"{ACTIONS}/restore", json=body)).json() == {
        "message": "Successfully restored 1 memories",
        "memory_ids": [row["id"]],
    }
    assert await states(client, new_user) == {"one": "active"}


async def test_an_erased_memory_is_gone(client, new_user, remember):
    row = await remember(new_user, "one")
    body = {"memory_ids": [row["id"]], "user_id": new_user}
    assert (await client.post(f"{ACTIONS}/erase", json=body)).json() == {"message": "Successfully erased 1 memories"}
    assert await states(client, new_user) == {}
    assert (await client.post(f"{ACTIONS}/restore", json=body)).status_code == 404


async def test_without_ids_what_was_deleted_last_is_restored_one_deletion_after_the_other(client, new_user, remember):
    rows = [await remember(new_user, text) for text in ("one", "two", "three", "four")]
    one, two, three, four = [row["id"] for row in rows]
    for ids in ([one], [two, three]):
        body = {"user_id": new_user, "memory_ids": ids}
        assert (await client.request("DELETE", "/api/v1/memories", json=body)).is_success
    await client.post(f"{ACTIONS}/archive", json={"user_id": new_user, "memory_ids": [four]})
    body = {"user_id": new_user}
    answer = (await client.post(f"{ACTIONS}/restore", json=body)).json()
    assert answer["message"] == "Successfully restored 2 memories"
    assert set(answer["memory_ids"]) == {two, three}
    assert (await client.post(f"{ACTIONS}/restore", json=body)).json()["memory_ids"] == [one]
    nothing = await client.post(f"{ACTIONS}/restore", json=body)
    assert (nothing.status_code, nothing.json()["error"]) == (404, "nothing_deleted")
    assert await states(client, new_user) == {"one": "active", "two": "active", "three": "active", "four": "archived"}


async def test_who_restores_without_ids_restores_only_what_they_deleted_themself(client, services, new_user, remember):
    mine, theirs = [(await remember(new_user, text, app="claude"))["id"] for text in ("by the user", "by an app")]
    claude = await services.directory.caller(new_user, "claude")
    cursor = await services.directory.caller(new_user, "cursor")
    await services.memories.delete(claude, [theirs])
    await client.request("DELETE", "/api/v1/memories", json={"user_id": new_user, "memory_ids": [mine]})
    with pytest.raises(NotFound):
        await services.memories.restore_last(cursor)
    assert [str(id_) for id_ in await services.memories.restore_last(claude)] == [theirs]
    assert (await client.post(f"{ACTIONS}/restore", json={"user_id": new_user})).json()["memory_ids"] == [mine]

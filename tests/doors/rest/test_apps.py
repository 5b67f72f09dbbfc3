from __future__ import annotations

from uuid import uuid4

APPS = "/api/v1/apps"


async def test_apps_are_listed_with_what_they_wrote_and_read(client, new_user, remember):
    await remember(new_user, "one", app="claude")
    gone = await remember(new_user, "two", app="claude")
    await client.request("DELETE", "/api/v1/memories", json={"memory_ids": [gone["id"]], "user_id": new_user})
    await client.post("/api/v1/memories/search", json={"user_id": new_user, "query": "one", "app": "cursor"})
    answer = await client.get(APPS + "/", params={"user_id": new_user})
    page = answer.json()
    assert list(page) == ["total", "page", "page_size", "apps"]
    assert (page["page"], page["page_size"]) == (1, 10)
    assert list(page["apps"][0]) == [
        "id", "name", "is_active", "total_memories_created", "total_memories_accessed",
    ]  # fmt: skip
    numbers = {app["name"]: (app["total_memories_created"], app["total_memories_accessed"]) for app in page["apps"]}
    assert numbers["claude"] == (1, 0)
    assert numbers["cursor"] == (0, 1)
    page = (await client.get(APPS, params={"user_id": new_user, "activity": True})).json()
    found = {app["name"]: [app[key] for key in ("recently_created", "recently_accessed")] for app in page["apps"]}
    assert (found["claude"], found["cursor"]) == ([1, 0], [0, 1])
    assert {app["name"]: "last_accessed" in app for app in page["apps"] if app["name"] != "openmemory"} == {
        "claude": False,
        "cursor": True,
    }


async def test_apps_are_filtered_and_sorted(client, new_user, remember):
    await remember(new_user, "one", app="claude")
    await remember(new_user, "two", app="claude")
    await remember(new_user, "three", app="cursor")

    async def names(**params: object) -> list[str]:
        page = await client.get(APPS, params={"user_id": new_user, "name": "C"} | params)
        return [app["name"] for app in page.json()["apps"]]

    assert await names() == ["claude", "cursor"]
    assert await names(sort_direction="desc") == ["cursor", "claude"]
    assert await names(sort_by="memories") == ["cursor", "claude"]
    assert await names(page=2, page_size=1) == ["cursor"]
    assert await names(is_active=False) == []


async def test_an_app_is_paused_and_goes_on(client, new_user, remember):
    row = await remember(new_user, "one", app="claude")
    url, body = f"{APPS}/{row['app_id']}", {"user_id": new_user, "query": "one", "app": "claude"}
    answer = await client.put(url, params={"is_active": False, "user_id": new_user})
    assert answer.json() == {"status": "success", "message": "Updated app details successfully"}
    assert (await client.post("/api/v1/memories/search", json=body)).json()["results"] == []
    await client.put(url + "/", params={"is_active": True, "user_id": new_user})
    assert len((await client.post("/api/v1/memories/search", json=body)).json()["results"]) == 1


async def test_somebody_elses_app_cannot_be_paused(client, new_user, remember):
    row = await remember(f"{new_user}-other", "one", app="claude")
    await remember(new_user, "two")
    for app in (row["app_id"], str(uuid4())):
        answer = await client.put(f"{APPS}/{app}", params={"is_active": False, "user_id": new_user})
        assert (answer.status_code, answer.json()["detail"]) == (404, "App not found")

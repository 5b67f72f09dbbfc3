"""`/api/v1/apps`: which there are, what they wrote and accessed, and pausing them."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contract.openmemory.shapes import ACCESSED, APP, APP_DETAIL, OF_APP, assert_shape

APPS = "/api/v1/apps"


async def get(api, user: str, path: str = "/", **params: object) -> dict:
    answer = await api.get(APPS + path, params={"user_id": user} | params)
    assert answer.status_code == 200, answer.text
    found: dict = answer.json()
    return found


async def searched(api, user: str, query: str, app: str) -> None:
    body = {"user_id": user, "query": query, "app": app, "limit": 1}
    assert len((await api.post("/api/v1/memories/search", json=body)).json()["results"]) == 1


@pytest.fixture
async def claude(api, new_user, remember, bring) -> str:
    """The id of an app that wrote a memory in each state, the deleted one first."""
    for day, state in enumerate(("deleted", "archived", "paused", "active"), start=1):
        row = await remember(
            f"memory {state}", app="claude", created_at=f"2020-01-0{day}T00:00:00Z", categories=["red"]
        )
        if state != "active":
            await bring(state, row)
    app_id: str = row["app_id"]
    return app_id


# The rows of GET /api/v1/apps/.


@pytest.mark.parametrize("path", ["", "/"])
async def test_apps_are_a_page_of_ten_with_what_they_created_and_accessed(api, new_user, claude, path):
    """Created are those that are not deleted; accessed are different memories, however often."""
    for _ in range(3):
        await searched(api, new_user, "memory active", "claude")
    page = await get(api, new_user, path)
    assert list(page) == ["total", "page", "page_size", "apps"]
    assert (page["total"], page["page"], page["page_size"]) == (2, 1, 10)
    for app in page["apps"]:
        assert_shape(app, APP, whole=True)
    numbers = {app["name"]: (app["total_memories_created"], app["total_memories_accessed"]) for app in page["apps"]}
    assert numbers["claude"] == (3, 1)


async def test_apps_are_the_users_own(api, new_user, remember):
    """OpenMemory listed everybody's."""
    await remember("mine", app="mine")
    await remember("theirs", user=f"{new_user}-other", app="theirs")
    page = await get(api, new_user)
    assert {app["name"] for app in page["apps"]} == {"mine", "openmemory"}
    assert page["total"] == 2


@pytest.mark.slow
@pytest.mark.parametrize(
    ("params", "names"),
    [
        ({}, ["alpha", "beta", "gamma", "openmemory"]),
        ({"sort_by": "name", "sort_direction": "desc"}, ["openmemory", "gamma", "beta", "alpha"]),
        ({"sort_by": "memories", "sort_direction": "desc", "page_size": 2}, ["beta", "alpha"]),
        ({"sort_by": "memories", "sort_direction": "asc", "page": 2, "page_size": 3}, ["beta"]),
        ({"sort_by": "memories_accessed", "sort_direction": "desc", "page_size": 1}, ["gamma"]),
        ({"name": "ETA"}, ["beta"]),
        ({"name": "%"}, []),
        ({"is_active": "false"}, ["gamma"]),
        ({"is_active": "true"}, ["alpha", "beta", "openmemory"]),
    ],
)
async def test_apps_are_narrowed_sorted_and_paged(api, new_user, remember, params, names):
    await remember("one", app="alpha")
    await remember("two", app="beta")
    await remember("three", app="beta")
    await searched(api, new_user, "three", "gamma")
    gamma = (await get(api, new_user, name="gamma"))["apps"][0]["id"]
    await api.put(f"{APPS}/{gamma}", params={"user_id": new_user, "is_active": "false"})
    page = await get(api, new_user, **params)
    assert [app["name"] for app in page["apps"]] == names


@pytest.mark.parametrize(
    ("params", "status"), [({"page_size": 100}, 200), ({"page_size": 101}, 422), ({"page": 0}, 422)]
)
async def test_a_page_of_apps_has_bounds(api, new_user, remember, params, status):
    await remember("one")
    assert (await api.get(f"{APPS}/", params={"user_id": new_user} | params)).status_code == status


async def test_without_a_user_the_apps_are_the_default_users(api, services, new_user, remember):
    """OpenMemory's page names no user here; it was built for the one that the service was set up for."""
    await remember("theirs", app=f"app-of-{new_user}")
    row = await remember("ours", user=services.settings.access.default_user, app="claude")
    names = {app["name"]: app["id"] for app in (await api.get(APPS, params={"page_size": 100})).json()["apps"]}
    assert names["claude"] == row["app_id"]
    assert f"app-of-{new_user}" not in names
    for part in ("", "/memories", "/accessed"):
        assert (await api.get(f"{APPS}/{row['app_id']}{part}")).status_code == 200


# The rows of GET /api/v1/apps/{id}.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_one_app_counts_deleted_memories_and_every_access(api, new_user, claude, slash):
    for _ in range(3):
        await searched(api, new_user, "memory active", "claude")
    found = await get(api, new_user, f"/{claude}{slash}")
    assert_shape(found, APP_DETAIL, whole=True)
    assert (found["is_active"], found["total_memories_created"], found["total_memories_accessed"]) == (True, 4, 3)
    assert found["first_accessed"] < found["last_accessed"]


async def test_an_app_that_accessed_nothing_has_no_times(api, new_user, claude):
    found = await get(api, new_user, f"/{claude}")
    assert (found["total_memories_accessed"], found["first_accessed"], found["last_accessed"]) == (0, None, None)


# The rows of GET /api/v1/apps/{id}/memories.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_what_an_app_wrote_is_listed_newest_first_with_naive_times(api, new_user, remember, claude, slash):
    await remember("by another", app="cursor")
    page = await get(api, new_user, f"/{claude}/memories{slash}")
    assert list(page) == ["total", "page", "page_size", "memories"]
    assert (page["total"], page["page"], page["page_size"]) == (3, 1, 10)
    for memory in page["memories"]:
        assert_shape(memory, OF_APP, whole=True)
        assert memory["app_id"] == claude
    assert [memory["state"] for memory in page["memories"]] == ["active", "paused", "archived"]
    assert page["memories"][0]["created_at"] == "2020-01-04T00:00:00"
    assert page["memories"][0]["categories"] == ["red"]
    second = await get(api, new_user, f"/{claude}/memories", page=2, page_size=2)
    assert [memory["state"] for memory in second["memories"]] == ["archived"]
    assert (second["total"], second["page"], second["page_size"]) == (3, 2, 2)


# The rows of GET /api/v1/apps/{id}/accessed.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_what_an_app_accessed_is_listed_by_how_often(api, new_user, remember, slash):
    await remember("alpacas like carrots", app="claude", categories=["food"])
    await remember("the deploy is on Tuesdays", app="claude", created_at="2020-01-01T00:00:00Z")
    await remember("never read", app="claude")
    for _ in range(2):
        await searched(api, new_user, "deploy tuesdays", "cursor")
    await searched(api, new_user, "alpacas carrots", "cursor")
    cursor = (await get(api, new_user, name="cursor"))["apps"][0]["id"]
    page = await get(api, new_user, f"/{cursor}/accessed{slash}")
    assert list(page) == ["total", "page", "page_size", "memories"]
    assert (page["total"], page["page"], page["page_size"]) == (2, 1, 10)
    for found in page["memories"]:
        assert list(found) == ["memory", "access_count"]
        assert_shape(found["memory"], ACCESSED, whole=True)
        assert found["memory"]["app_name"] == "claude"
    counts = [(found["memory"]["content"], found["access_count"]) for found in page["memories"]]
    assert counts == [("the deploy is on Tuesdays", 2), ("alpacas like carrots", 1)]
    assert page["memories"][0]["memory"]["created_at"] == "2020-01-01T00:00:00"
    second = await get(api, new_user, f"/{cursor}/accessed", page=2, page_size=1)
    assert [found["memory"]["content"] for found in second["memories"]] == ["alpacas like carrots"]
    assert second["total"] == 2


# The rows of PUT /api/v1/apps/{id}.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_an_app_is_paused_and_resumed(api, new_user, claude, slash):
    for active in ("false", "true"):
        answer = await api.put(f"{APPS}/{claude}{slash}", params={"user_id": new_user, "is_active": active})
        assert answer.json() == {"status": "success", "message": "Updated app details successfully"}
        assert (await get(api, new_user, f"/{claude}"))["is_active"] is (active == "true")


@pytest.mark.parametrize("part", ["", "/memories", "/accessed"])
async def test_an_app_that_is_unknown_or_somebody_elses_is_not_found(api, new_user, remember, part):
    await remember("mine")
    theirs = await remember("theirs", user=f"{new_user}-other", app="claude")
    for app_id in (theirs["app_id"], str(uuid4())):
        answer = await api.get(f"{APPS}/{app_id}{part}", params={"user_id": new_user})
        assert (answer.status_code, answer.json()["detail"]) == (404, "App not found")
        if not part:
            answer = await api.put(f"{APPS}/{app_id}", params={"user_id": new_user, "is_active": "false"})
            assert (answer.status_code, answer.json()["detail"]) == (404, "App not found")

"""`GET /api/v1/stats`: what the first screen of OpenMemory's page counts."""

from __future__ import annotations

import pytest

from tests.contract.openmemory.shapes import APP_ROW, assert_shape


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_profile_counts_what_is_not_deleted_and_shows_every_app(api, new_user, remember, bring, slash):
    for state in ("active", "paused", "archived", "deleted"):
        row = await remember(state, app="claude")
        if state != "active":
            await bring(state, row)
    await remember("theirs", user=f"{new_user}-other", app="cursor")
    answer = await api.get(f"/api/v1/stats{slash}", params={"user_id": new_user})
    found = answer.json()
    assert answer.status_code == 200
    assert list(found) == ["total_memories", "total_apps", "apps"]
    assert (found["total_memories"], found["total_apps"]) == (3, 2)
    assert [app["name"] for app in found["apps"]] == ["claude", "openmemory"]
    for app in found["apps"]:
        assert_shape(app, APP_ROW, whole=True)
        assert app["owner_id"] == row["user_id"]


async def test_the_profile_of_an_unknown_user_is_empty(api, new_user):
    answer = await api.get("/api/v1/stats", params={"user_id": new_user})
    assert (answer.status_code, answer.json()) == (200, {"total_memories": 0, "total_apps": 0, "apps": []})


async def test_a_profile_of_nobody_in_particular_is_the_default_users(api, remember):
    await remember("of the default user", user="default_user")
    shown, named = [await api.get("/api/v1/stats/", params=p) for p in ({}, {"user_id": "default_user"})]
    assert (shown.status_code, shown.json()) == (200, named.json())

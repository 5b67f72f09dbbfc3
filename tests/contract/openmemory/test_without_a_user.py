"""Calls that name no user: OpenMemory's page makes some, and where no key is asked for they are of whose the id is."""

from __future__ import annotations

from uuid import uuid4

import pytest

MEMORIES = "/api/v1/memories"
APPS = "/api/v1/apps"


@pytest.mark.parametrize("part", ["access-log", "related", "history", ""])
@pytest.mark.parametrize("user_id", [None, ""])
async def test_where_no_key_is_asked_for_a_memory_is_found_without_naming_its_user(api, remember, part, user_id):
    """The page names no user when it asks for the access log, whoever it was built for."""
    row = await remember("mine")
    params = {} if user_id is None else {"user_id": user_id}
    answer = await api.get(f"{MEMORIES}/{row['id']}/{part}".rstrip("/"), params=params)
    assert answer.status_code == 200, answer.text


@pytest.mark.parametrize("part", ["", "/memories", "/accessed"])
async def test_where_no_key_is_asked_for_an_app_is_found_without_naming_its_user(api, remember, part):
    row = await remember("mine", app="claude")
    answer = await api.get(f"{APPS}/{row['app_id']}{part}")
    assert answer.status_code == 200, answer.text
    if not part:
        answer = await api.put(f"{APPS}/{row['app_id']}", params={"is_active": "false"})
        assert answer.json() == {"status": "success", "message": "Updated app details successfully"}
        assert (await api.get(f"{APPS}/{row['app_id']}")).json()["is_active"] is False


async def test_who_is_named_is_meant(api, new_user, remember):
    row = await remember("mine", app="claude")
    await remember("theirs", user=f"{new_user}-other")
    params = {"user_id": f"{new_user}-other"}
    for path, detail in ((f"{MEMORIES}/{row['id']}", "Memory not found"), (f"{APPS}/{row['app_id']}", "App not found")):
        answer = await api.get(path, params=params)
        assert (answer.status_code, answer.json()["detail"]) == (404, detail)


@pytest.mark.parametrize(("path", "detail"), [(MEMORIES, "Memory not found"), (APPS, "App not found")])
async def test_an_id_of_nobody_is_not_found(api, remember, path, detail):
    await remember("of the default user", user="default_user")
    answer = await api.get(f"{path}/{uuid4()}")
    assert (answer.status_code, answer.json()["detail"]) == (404, detail)


@pytest.mark.parametrize("path", [f"{MEMORIES}/", f"{MEMORIES}/categories", "/api/v1/stats"])
async def test_an_empty_name_is_no_users(api, path):
    answer = await api.get(path, params={"user_id": ""})
    assert (answer.status_code, answer.json()["detail"]) == (404, "User not found")

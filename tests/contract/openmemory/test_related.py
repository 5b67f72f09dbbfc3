"""`GET /api/v1/memories/{id}/related` and `GET /api/v1/memories/categories`."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contract.openmemory.shapes import CATEGORY, LISTED, assert_shape

MEMORIES = "/api/v1/memories"


async def related(api, user: str, memory_id: str, slash: str = "", **params: object) -> dict:
    answer = await api.get(f"{MEMORIES}/{memory_id}/related{slash}", params={"user_id": user} | params)
    assert answer.status_code == 200, answer.text
    page: dict = answer.json()
    return page


@pytest.mark.slow
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize("more", [{}, {"size": 50}])
async def test_related_memories_come_five_on_a_page_whatever_is_asked_for(api, new_user, remember, slash, more):
    one = await remember("one", categories=["red"])
    for number in range(7):
        await remember(f"other {number}", categories=["red"], created_at=f"2020-01-0{number + 1}T00:00:00Z")
    first = await related(api, new_user, one["id"], slash, **more)
    assert list(first) == ["items", "total", "page", "size", "pages"]
    assert [first[name] for name in ("total", "page", "size", "pages")] == [7, 1, 5, 2]
    assert_shape(first["items"][0], LISTED)
    second = await related(api, new_user, one["id"], slash, page=2, **more)
    found = [item["content"] for page in (first, second) for item in page["items"]]
    assert found == [f"other {number}" for number in range(6, -1, -1)]


async def test_those_that_share_most_come_first_then_the_newest(api, new_user, remember):
    one = await remember("one", categories=["red", "blue", "green"])
    await remember("all three", categories=["red", "blue", "green"], created_at="2020-01-01T00:00:00Z")
    await remember("two", categories=["red", "blue", "white"], created_at="2020-01-02T00:00:00Z")
    await remember("older", categories=["green"], created_at="2020-01-03T00:00:00Z")
    await remember("newer", categories=["red"], created_at="2020-01-04T00:00:00Z")
    await remember("none", categories=["white"])
    page = await related(api, new_user, one["id"])
    assert [item["content"] for item in page["items"]] == ["all three", "two", "newer", "older"]


async def test_related_are_the_users_own_that_are_not_deleted(api, new_user, remember, bring):
    one = await remember("one", categories=["red"])
    for state in ("paused", "archived", "deleted"):
        await bring(state, await remember(state, categories=["red"]))
    await remember("theirs", user=f"{new_user}-other", categories=["red"])
    page = await related(api, new_user, one["id"])
    assert {item["content"] for item in page["items"]} == {"paused", "archived"}
    assert page["total"] == 2


async def test_a_memory_without_categories_has_an_empty_page(api, new_user, remember):
    one = await remember("one")
    await remember("two", categories=["red"])
    page = await related(api, new_user, one["id"])
    assert page == {"items": [], "total": 0, "page": 1, "size": 5, "pages": 0}


async def test_what_is_unknown_or_somebody_elses_has_no_related(api, new_user, remember):
    theirs = await remember("theirs", user=f"{new_user}-other", categories=["red"])
    await remember("mine", categories=["red"])
    for id_ in (theirs["id"], str(uuid4())):
        answer = await api.get(f"{MEMORIES}/{id_}/related", params={"user_id": new_user})
        assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")


@pytest.mark.parametrize("slash", ["", "/"])
async def test_categories_are_those_of_active_and_paused_memories(api, new_user, remember, bring, slash):
    await remember("active", categories=["red", "blue"])
    await remember("again", categories=["red"])
    for state in ("paused", "archived", "deleted"):
        await bring(state, await remember(state, categories=[state]))
    await remember("theirs", user=f"{new_user}-other", categories=["theirs"])
    answer = await api.get(f"{MEMORIES}/categories{slash}", params={"user_id": new_user})
    found = answer.json()
    assert answer.status_code == 200
    assert list(found) == ["categories", "total"]
    assert [category["name"] for category in found["categories"]] == ["blue", "paused", "red"]
    assert found["total"] == 3
    for category in found["categories"]:
        assert_shape(category, CATEGORY, whole=True)


async def test_an_unknown_user_has_no_categories(api, new_user):
    answer = await api.get(f"{MEMORIES}/categories", params={"user_id": new_user})
    assert (answer.status_code, answer.json()) == (200, {"categories": [], "total": 0})

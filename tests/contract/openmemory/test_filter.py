"""`POST /api/v1/memories/filter`: the list of OpenMemory's page."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contract.openmemory.shapes import LISTED, assert_shape

FILTER = "/api/v1/memories/filter"
NOON = 1_577_880_000
"""2020-01-01T12:00:00Z"""


def at(day: int) -> str:
    return f"2020-01-0{day}T12:00:00Z"


async def filtered(api, user: str, **body: object) -> dict:
    answer = await api.post(FILTER, json={"user_id": user} | body)
    assert answer.status_code == 200, answer.text
    page: dict = answer.json()
    return page


async def contents(api, user: str, **body: object) -> list[str]:
    page = await filtered(api, user, **body)
    assert page["total"] == len(page["items"])
    return [item["content"] for item in page["items"]]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_filter_answers_a_page_of_ten_with_epoch_seconds(api, new_user, remember, slash):
    await remember("Alice drinks tea", created_at=at(1), categories=["food"])
    answer = await api.post(FILTER + slash, json={"user_id": new_user})
    page = answer.json()
    assert answer.status_code == 200
    assert list(page) == ["items", "total", "page", "size", "pages"]
    assert [page[name] for name in ("total", "page", "size", "pages")] == [1, 1, 10, 1]
    [item] = page["items"]
    assert_shape(item, LISTED)
    assert (item["content"], item["created_at"], item["categories"]) == ("Alice drinks tea", NOON, ["food"])


async def test_the_bodies_that_the_page_sends_are_taken(api, new_user, remember):
    row = await remember("Alice drinks tea", app="claude")
    body = {
        "user_id": new_user, "page": 1, "size": 10, "search_query": "", "app_ids": [row["app_id"]], "category_ids": [],
        "sort_column": "created_at", "sort_direction": "desc", "show_archived": False,
    }  # fmt: skip
    assert await contents(api, new_user, **body) == ["Alice drinks tea"]
    empty = dict.fromkeys(("search_query", "app_ids", "category_ids", "sort_column", "sort_direction"))
    assert await contents(api, new_user, **body | empty) == ["Alice drinks tea"]


@pytest.mark.parametrize("size", [10, 20, 50, 100])
async def test_the_page_sizes_of_the_page_are_taken(api, new_user, remember, size):
    await remember("one")
    assert (await filtered(api, new_user, size=size))["size"] == size


@pytest.mark.parametrize("wrong", [{"size": 101}, {"size": 0}, {"page": 0}, {"app_ids": ["x"]}, {"category_ids": "x"}])
async def test_what_a_filter_cannot_be_is_refused(api, new_user, remember, wrong):
    await remember("one")
    answer = await api.post(FILTER, json={"user_id": new_user} | wrong)
    assert (answer.status_code, answer.json()["detail"].startswith(next(iter(wrong)))) == (422, True)


async def test_archived_memories_are_shown_on_demand_and_deleted_ones_never(api, new_user, remember, bring):
    for state in ("active", "paused", "archived", "deleted"):
        row = await remember(state)
        if state != "active":
            await bring(state, row)
    assert set(await contents(api, new_user)) == {"active", "paused"}
    assert set(await contents(api, new_user, show_archived=True)) == {"active", "paused", "archived"}


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"search_query": "TH"}, {"three"}),
        ({"search_query": "%"}, set()),
        ({"from_date": NOON + 86_400}, {"two", "three"}),
        ({"to_date": NOON + 86_400}, {"one", "two"}),
        ({"category_ids": [str(uuid4())]}, set()),
        ({"app_ids": [str(uuid4())]}, set()),
    ],
)
async def test_a_filter_narrows(api, new_user, remember, filters, found):
    for day, text in enumerate(("one", "two", "three"), start=1):
        await remember(text, created_at=at(day))
    assert set(await contents(api, new_user, **filters)) == found


async def test_a_filter_narrows_to_apps_and_categories_by_their_ids(api, new_user, remember):
    """A memory of two wanted categories is there once: the join listed it twice, and DISTINCT ON failed."""
    claude = await remember("one", app="claude", categories=["red", "blue"])
    cursor = await remember("two", app="cursor", categories=["blue"])
    await remember("three", app="cline")
    found = (await api.get("/api/v1/memories/categories", params={"user_id": new_user})).json()["categories"]
    ids = {category["name"]: category["id"] for category in found}
    assert set(await contents(api, new_user, app_ids=[claude["app_id"], cursor["app_id"]])) == {"one", "two"}
    assert await contents(api, new_user, category_ids=[ids["red"]]) == ["one"]
    both = {"category_ids": [ids["red"], ids["blue"]], "sort_column": "memory", "sort_direction": "asc"}
    assert await contents(api, new_user, **both) == ["one", "two"]
    assert await contents(api, new_user, category_ids=[ids["blue"]], app_ids=[cursor["app_id"]]) == ["two"]


@pytest.mark.slow
@pytest.mark.parametrize("direction", ["asc", "desc", "ASC", "Desc"])
@pytest.mark.parametrize(("column", "order"), [("memory", "abc"), ("app_name", "cab"), ("created_at", "cab")])
async def test_a_filter_sorts(api, new_user, remember, column, direction, order):
    for day, text in enumerate("cab", start=1):
        await remember(text, app=f"app{day}", created_at=at(day))
    found = await contents(api, new_user, sort_column=column, sort_direction=direction)
    assert "".join(found) == (order if direction.lower() == "asc" else order[::-1])


@pytest.mark.parametrize("sorting", [{}, {"sort_column": "memory"}, {"sort_direction": "asc"}])
async def test_newest_first_unless_column_and_direction_are_given(api, new_user, remember, sorting):
    for day, text in enumerate("cab", start=1):
        await remember(text, created_at=at(day))
    assert "".join(await contents(api, new_user, **sorting)) == "bac"


@pytest.mark.parametrize(
    ("sorting", "detail"),
    [
        ({"sort_column": "vector", "sort_direction": "asc"}, "Invalid sort column"),
        ({"sort_column": "categories", "sort_direction": "asc"}, "Invalid sort column"),
        ({"sort_column": "memory", "sort_direction": "sideways"}, "Invalid sort direction"),
    ],
)
async def test_an_unknown_sorting_is_refused(api, new_user, remember, sorting, detail):
    await remember("one")
    answer = await api.post(FILTER, json={"user_id": new_user} | sorting)
    assert (answer.status_code, answer.json()["detail"]) == (400, detail)


@pytest.mark.slow
@pytest.mark.parametrize("column", ["memory", "app_name", "created_at"])
@pytest.mark.parametrize("direction", ["asc", "desc"])
async def test_every_memory_is_on_one_page_of_a_sorted_filter(api, new_user, remember, bring, column, direction):
    """Equal keys too: without an order of their own they may come on two pages, or on none."""
    rows = [
        await remember(f"text {n // 3}", namespace=f"n{n % 3}", app=f"app{n % 2}", created_at=at(1)) for n in range(9)
    ]
    await bring("deleted", rows[4])
    sorting = {"sort_column": column, "sort_direction": direction}
    pages = [await filtered(api, new_user, page=number, size=2, **sorting) for number in range(1, 6)]
    assert [len(page["items"]) for page in pages] == [2, 2, 2, 2, 0]
    assert {page["total"] for page in pages} == {8}
    assert {page["pages"] for page in pages} == {4}
    found = [item["id"] for page in pages for item in page["items"]]
    assert sorted(found) == sorted(row["id"] for row in rows if row is not rows[4])


async def test_an_unknown_user_has_nothing_to_filter(api, new_user):
    answer = await api.post(FILTER, json={"user_id": new_user})
    assert (answer.status_code, answer.json()["items"], answer.json()["total"]) == (200, [], 0)


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_a_blank_in_the_search_field_is_a_part_of_a_text_like_any_other(api, new_user, remember, method):
    await remember("two words")
    await remember("one")
    wanted = {"user_id": new_user, "search_query": " "}
    if method == "GET":
        answer = await api.get("/api/v1/memories/", params=wanted)
    else:
        answer = await api.post("/api/v1/memories/filter", json=wanted)
    assert answer.status_code == 200, answer.text
    assert [item["content"] for item in answer.json()["items"]] == ["two words"]


async def test_a_filter_takes_null_for_what_is_left_out(api, new_user, remember):
    await remember("one")
    answer = await api.post("/api/v1/memories/filter", json={"user_id": new_user, "show_archived": None})
    assert answer.status_code == 200, answer.text
    assert answer.json()["total"] == 1

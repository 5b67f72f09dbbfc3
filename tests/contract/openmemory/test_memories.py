"""`/api/v1/memories`: listing, adding, showing, changing, deleting."""

from __future__ import annotations

from uuid import uuid4

import pytest

from tests.contract.openmemory.shapes import DETAIL, LISTED, ROW, assert_shape

MEMORIES = "/api/v1/memories"
NOON = 1_577_880_000
"""2020-01-01T12:00:00Z"""


def at(day: int) -> str:
    return f"2020-01-0{day}T12:00:00Z"


async def contents(api, user: str, **params: object) -> list[str]:
    answer = await api.get(f"{MEMORIES}/", params={"user_id": user} | params)
    assert answer.status_code == 200, answer.text
    page = answer.json()
    assert page["total"] == len(page["items"])
    return [item["content"] for item in page["items"]]


# The rows of GET /api/v1/memories/.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_list_is_a_page_of_fifty_with_epoch_seconds(api, new_user, remember, slash):
    await remember("Alice drinks tea", created_at=at(1), categories=["food"], metadata={"n": 1})
    answer = await api.get(MEMORIES + slash, params={"user_id": new_user})
    page = answer.json()
    assert answer.status_code == 200
    assert list(page) == ["items", "total", "page", "size", "pages"]
    assert [page[name] for name in ("total", "page", "size", "pages")] == [1, 1, 50, 1]
    [item] = page["items"]
    assert_shape(item, LISTED)
    assert (item["content"], item["created_at"]) == ("Alice drinks tea", NOON)
    assert (item["app_name"], item["categories"], item["metadata_"]) == ("openmemory", ["food"], {"n": 1})


async def test_the_list_of_an_unknown_user_is_empty(api, new_user):
    """The old server answered 404 for a user that it would have made."""
    answer = await api.get(f"{MEMORIES}/", params={"user_id": new_user})
    assert (answer.status_code, answer.json()["items"], answer.json()["total"]) == (200, [], 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"from_date": NOON + 86_400}, {"two", "three"}),
        ({"to_date": NOON + 86_400}, {"one", "two"}),
        ({"from_date": NOON + 86_400, "to_date": NOON + 86_400}, {"two"}),
        ({"categories": "red"}, {"one"}),
        ({"categories": "red,blue"}, {"one", "two"}),
        ({"categories": " red , blue "}, {"one", "two"}),
        ({"categories": "green"}, set()),
        ({"search_query": "TW"}, {"two"}),
        ({"search_query": "e"}, {"one", "three"}),
        ({"search_query": "%"}, set()),
        ({"search_query": "_"}, set()),
    ],
)
async def test_a_list_is_narrowed(api, new_user, remember, filters, found):
    await remember("one", categories=["red"], created_at=at(1))
    await remember("two", categories=["blue", "red2"], created_at=at(2))
    await remember("three", created_at=at(3))
    assert set(await contents(api, new_user, **filters)) == found


async def test_a_list_is_narrowed_to_an_app(api, new_user, remember):
    row = await remember("by claude", app="claude")
    await remember("by cursor", app="cursor")
    assert await contents(api, new_user, app_id=row["app_id"]) == ["by claude"]


async def test_a_memory_of_several_wanted_categories_is_listed_once(api, new_user, remember):
    """A join with categories listed it once for each, and DISTINCT ON was an error of PostgreSQL."""
    await remember("one", categories=["red", "blue"])
    assert await contents(api, new_user, categories="red,blue", sort_column="content") == ["one"]


async def test_pages_go_on_where_the_last_ended_and_the_total_counts_what_they_hold(api, new_user, remember, bring):
    """Of what an ACL or a state hid, a page was short while the total counted it."""
    rows = [await remember(f"memory {number}", created_at=at(number + 1)) for number in range(6)]
    await bring("paused", rows[0])
    found = []
    for number in (1, 2, 3, 4):
        page = (await api.get(f"{MEMORIES}/", params={"user_id": new_user, "page": number, "size": 2})).json()
        assert (page["total"], page["pages"], page["page"], page["size"]) == (5, 3, number, 2)
        found.append([item["content"] for item in page["items"]])
    assert found == [["memory 5", "memory 4"], ["memory 3", "memory 2"], ["memory 1"], []]


async def test_what_is_paused_archived_or_deleted_is_not_listed(api, new_user, remember, bring):
    """OpenMemory's query passed paused memories, and its check of each took them out again: nobody ever saw one."""
    for state in ("active", "paused", "archived", "deleted"):
        row = await remember(state)
        if state != "active":
            await bring(state, row)
    assert await contents(api, new_user) == ["active"]


@pytest.mark.parametrize(
    ("params", "status"),
    [
        ({"page": 0}, 422),
        ({"size": 0}, 422),
        ({"size": 100}, 200),
        ({"size": 101}, 422),
        ({"app_id": "x"}, 422),
        ({"sort_column": "no_such_column", "sort_direction": "asc"}, 200),
    ],
)
async def test_a_list_has_bounds(api, new_user, remember, params, status):
    await remember("one")
    assert (await api.get(f"{MEMORIES}/", params={"user_id": new_user} | params)).status_code == status


@pytest.mark.parametrize(
    ("column", "direction", "order"),
    [
        ("content", "asc", "abc"),
        ("content", "desc", "cba"),
        ("content", None, "abc"),
        ("created_at", "asc", "cab"),
        ("created_at", "desc", "bac"),
        ("updated_at", "asc", "cab"),
        ("no_such_column", "asc", "bac"),
        (None, None, "bac"),
        (None, "asc", "bac"),
    ],
)
async def test_a_list_is_sorted_by_any_column(api, new_user, remember, column, direction, order):
    for day, text in enumerate("cab", start=1):
        await remember(text, created_at=at(day))
    given = {"sort_column": column, "sort_direction": direction}
    sorting = {name: value for name, value in given.items() if value is not None}
    assert "".join(await contents(api, new_user, **sorting)) == order


# The rows of POST /api/v1/memories/.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_adding_answers_the_raw_row(api, new_user, slash):
    body = {"user_id": new_user, "text": "Alice drinks tea", "metadata": {"n": 1}, "infer": False, "app": "claude"}
    answer = await api.post(MEMORIES + slash, json=body)
    assert answer.status_code == 200
    assert_shape(row := answer.json(), ROW)
    assert (row["content"], row["metadata_"], row["state"]) == ("Alice drinks tea", {"n": 1}, "active")
    apps = (await api.get("/api/v1/apps/", params={"user_id": new_user, "name": "claude"})).json()["apps"]
    assert [app["id"] for app in apps] == [row["app_id"]]


async def test_what_is_left_out_of_a_new_memory_has_its_default(api, new_user):
    row = (await api.post(f"{MEMORIES}/", json={"user_id": new_user, "text": "Alice drinks tea"})).json()
    shown = (await api.get(f"{MEMORIES}/{row['id']}", params={"user_id": new_user})).json()
    assert (row["metadata_"], shown["app_name"]) == ({}, "openmemory")


async def test_adding_never_answers_null_or_an_error_with_200(api, new_user):
    """OpenMemory answered `null` when its model found no fact, and `{"error": …}` when something failed."""
    body = {"user_id": new_user, "text": "Alice drinks tea"}
    for _ in range(2):
        answer = await api.post(f"{MEMORIES}/", json=body)
        assert answer.status_code == 200
        assert_shape(answer.json(), ROW)
        assert "error" not in answer.json()
    refused = await api.post(f"{MEMORIES}/", json=body | {"text": " "})
    assert refused.status_code == 422


async def test_a_new_user_may_add(api, new_user):
    """OpenMemory refused here whom its MCP tools made: a first memory had to come from an assistant."""
    answer = await api.post(f"{MEMORIES}/", json={"user_id": new_user, "text": "first", "infer": False})
    assert answer.status_code == 200


async def test_a_paused_app_may_not_add(api, new_user, remember):
    row = await remember("before", app="claude")
    await api.put(f"/api/v1/apps/{row['app_id']}", params={"is_active": "false", "user_id": new_user})
    answer = await api.post(f"{MEMORIES}/", json={"user_id": new_user, "text": "after", "app": "claude"})
    assert (answer.status_code, answer.json()["detail"]) == (
        403, "App claude is currently paused on OpenMemory. Cannot create new memories.",
    )  # fmt: skip


# The rows of GET /api/v1/memories/{id}.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_one_memory_is_shown_with_its_text_and_epoch_seconds(api, new_user, remember, slash):
    row = await remember("Alice drinks tea", created_at=at(1), categories=["food"])
    answer = await api.get(f"{MEMORIES}/{row['id']}{slash}", params={"user_id": new_user})
    assert answer.status_code == 200
    assert_shape(shown := answer.json(), DETAIL)
    assert (shown["text"], shown["created_at"], shown["categories"]) == ("Alice drinks tea", NOON, ["food"])
    assert "content" not in shown


@pytest.mark.parametrize("state", ["paused", "archived", "deleted"])
async def test_one_memory_is_shown_in_whatever_state_it_is(api, new_user, remember, bring, state):
    await bring(state, row := await remember("one"))
    shown = (await api.get(f"{MEMORIES}/{row['id']}", params={"user_id": new_user})).json()
    assert shown["state"] == state


async def test_an_unknown_memory_is_not_found(api):
    answer = await api.get(f"{MEMORIES}/{uuid4()}")
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")


async def test_a_memory_of_somebody_else_is_not_found(api, new_user, remember):
    """OpenMemory ignored the user that its page sends."""
    row = await remember("a secret")
    await remember("something", user=f"{new_user}-other")
    answer = await api.get(f"{MEMORIES}/{row['id']}", params={"user_id": f"{new_user}-other"})
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")


# The rows of PUT /api/v1/memories/{id}.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_change_answers_the_raw_row(api, new_user, remember, slash):
    row = await remember("Alice drinks tea")
    body = {"memory_id": row["id"], "memory_content": "Alice drinks coffee", "user_id": new_user}
    answer = await api.put(f"{MEMORIES}/{row['id']}{slash}", json=body)
    assert answer.status_code == 200
    assert_shape(answer.json(), ROW)
    assert (answer.json()["id"], answer.json()["content"]) == (row["id"], "Alice drinks coffee")


async def test_a_changed_text_is_found_by_its_meaning_and_the_old_one_is_in_the_history(
    api, new_user, remember, services
):
    """OpenMemory changed the row alone: searches went by the old text, and it was gone without a trace."""
    row = await remember("Alice drinks tea")
    body = {"memory_content": "Alice drives a tractor", "user_id": new_user}
    await api.put(f"{MEMORIES}/{row['id']}", json=body)
    await services.outbox_delivery.drain()
    params = {"user_id": new_user, "query": "farm vehicle"}
    [found] = (await api.get(f"{MEMORIES}/search", params=params)).json()["results"]
    assert (found["memory"], found["parts"]["cosine"] > 0.2) == ("Alice drives a tractor", True)
    history = (await api.get(f"{MEMORIES}/{row['id']}/history", params={"user_id": new_user})).json()
    assert [revision["old_text"] for revision in history["revisions"]] == [None, "Alice drinks tea"]


async def test_an_unknown_memory_is_not_changed(api, new_user, remember):
    await remember("one")
    body = {"memory_content": "two", "user_id": new_user}
    answer = await api.put(f"{MEMORIES}/{uuid4()}", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")


# The rows of DELETE /api/v1/memories/.


@pytest.mark.parametrize("slash", ["", "/"])
async def test_deleting_says_how_many_and_keeps_the_rows(api, new_user, remember, slash):
    rows = [await remember(text) for text in ("one", "two", "three")]
    body = {"memory_ids": [row["id"] for row in rows[:2]], "user_id": new_user}
    answer = await api.request("DELETE", MEMORIES + slash, json=body)
    assert (answer.status_code, answer.json()) == (200, {"message": "Successfully deleted 2 memories"})
    assert await contents(api, new_user) == ["three"]
    shown = (await api.get(f"{MEMORIES}/{rows[0]['id']}", params={"user_id": new_user})).json()
    assert (shown["text"], shown["state"]) == ("one", "deleted")


async def test_deleting_what_is_unknown_or_of_an_unknown_user_is_not_found(api, new_user, remember):
    body = {"memory_ids": [str(uuid4())], "user_id": new_user}
    answer = await api.request("DELETE", f"{MEMORIES}/", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (404, "User not found")
    await remember("one")
    answer = await api.request("DELETE", f"{MEMORIES}/", json=body)
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")


async def test_a_new_memory_comes_from_no_state(api, new_user, remember):
    """OpenMemory's history let every memory begin as a deleted one."""
    row = await remember("one")
    history = (await api.get(f"{MEMORIES}/{row['id']}/history", params={"user_id": new_user})).json()
    assert [(change["old_state"], change["new_state"]) for change in history["states"]] == [(None, "active")]


async def test_a_new_text_that_is_refused_is_named_as_it_was_sent(api, new_user, remember):
    row = await remember("one")
    for text, status in ((" ", 422), ("a\x00b", 422), ("x" * 16_001, 413)):
        answer = await api.put(f"/api/v1/memories/{row['id']}", json={"user_id": new_user, "memory_content": text})
        assert (answer.status_code, answer.json()["detail"].partition(":")[0]) == (status, "memory_content")

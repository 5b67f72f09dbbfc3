from __future__ import annotations

from datetime import datetime
from uuid import UUID, uuid4

import pytest

LISTED = [
    "id", "content", "created_at", "updated_at", "state", "app_id", "app_name", "categories", "metadata_", "namespace",
    "thread_id", "kind", "key", "importance", "expires_at", "revision",
    "text_app_name", "labels",
]  # fmt: skip
ROW = [
    "id", "user_id", "app_id", "content", "metadata_", "state", "created_at", "updated_at", "archived_at",
    "deleted_at", "vector", "labels",
]  # fmt: skip


def is_naive(text: str) -> bool:
    return datetime.fromisoformat(text).tzinfo is None


async def test_adding_answers_the_raw_row_with_naive_times_and_what_became_of_the_text(client, new_user):
    body = {"user_id": new_user, "text": "Alice drinks tea", "metadata": {"n": 1}, "app": "claude", "categories": ["x"]}
    answer = await client.post("/api/v1/memories/", json=body)
    row = answer.json()
    ours = ["namespace", "thread_id", "kind", "key", "importance", "categories", "expires_at", "valid_from"]
    became = ["valid_until", "event", "note", "results", "refused", "capture_id", "status"]
    assert (answer.status_code, list(row)) == (200, [*ROW, *ours, *became])
    assert UUID(row["user_id"])
    assert UUID(row["app_id"])
    assert is_naive(row["created_at"])
    assert is_naive(row["updated_at"])
    assert (row["archived_at"], row["deleted_at"], row["vector"]) == (None, None, None)
    assert (row["content"], row["metadata_"], row["state"]) == ("Alice drinks tea", {"n": 1}, "active")
    assert row["event"] == "ADD"
    assert "verbatim" in row["note"]
    assert (row["namespace"], row["kind"], row["categories"], row["expires_at"]) == ("default", "memory", ["x"], None)
    [result] = row["results"]
    assert (result["id"], result["memory"], result["event"]) == (row["id"], "Alice drinks tea", "ADD")
    assert (row["refused"], row["capture_id"], row["status"]) == ([], None, "done")


@pytest.mark.parametrize("created_at", [None, "2020-02-03T04:05:06.789012+02:00"])
async def test_the_row_of_a_new_memory_is_the_one_that_is_stored(client, new_user, remember, created_at):
    metadata = {"b": [1, 2.5, None], "a": {"ünïcode": "😀"}}
    added = await remember(new_user, "Alice drinks tea", app="claude", metadata=metadata, created_at=created_at)
    again = await remember(new_user, "Alice drinks tea", app="claude")
    assert (added.pop("event"), again.pop("event")) == ("ADD", "NONE")
    assert (added.pop("results")[0]["event"], again.pop("results")[0]["event"]) == ("ADD", "NONE")
    assert added == again


async def test_unknown_fields_are_named(client, new_user):
    body = {"user_id": new_user, "text": "Alice drinks tea", "infer": False, "metdata": {"n": 1}, "a\nb": 2}
    added = (await client.post("/api/v1/memories", json=body)).json()
    assert (added["note"], added["metadata_"]) == ("Unknown fields were ignored: a\\nb, metdata.", {})
    change = {"user_id": new_user, "memory_content": "Alice drinks coffee", "memory_id": added["id"]}
    refused = await client.put(f"/api/v1/memories/{added['id']}", json=change | {"metdata": {"n": 1}})
    assert (refused.status_code, refused.json()["detail"]) == (422, "metdata: is not a known field")
    assert (await client.put(f"/api/v1/memories/{added['id']}", json=change)).status_code == 200


async def test_without_infer_there_is_nothing_to_note(client, new_user):
    answer = await client.post("/api/v1/memories", json={"user_id": new_user, "text": "x", "infer": False})
    assert answer.json()["note"] is None


async def test_the_same_text_again_is_answered_with_the_memory_that_says_it(client, new_user, remember):
    first = await remember(new_user, "Alice drinks tea", metadata={"first": True})
    second = await remember(new_user, "Alice drinks tea", metadata={"second": True})
    assert (second["id"], second["event"], second["metadata_"]) == (first["id"], "NONE", {"first": True})


async def test_an_app_that_may_not_read_what_it_writes_is_still_answered_with_the_row(client, new_user):
    grant = {"user_id": new_user, "effect": "deny", "app": "writer", "object_type": "all"}
    assert (await client.post("/api/v1/grants", json=grant)).status_code == 201
    answer = await client.post("/api/v1/memories", json={"user_id": new_user, "text": "hidden", "app": "writer"})
    assert (answer.status_code, answer.json()["event"]) == (200, "ADD")


async def test_what_is_ours_in_a_new_memory_is_kept(client, new_user, remember):
    row = await remember(
        new_user, "We deploy on Tuesdays", namespace="shop", thread_id="t1", kind="decision", key="deploys",
        importance=0.5, categories=["work", "ops"], created_at="2020-02-03T04:05:06+02:00",
        expires_at="2999-01-01T00:00:00Z",
    )  # fmt: skip
    shown = (await client.get(f"/api/v1/memories/{row['id']}", params={"user_id": new_user})).json()
    assert row["created_at"] == "2020-02-03T02:05:06"
    assert (shown["namespace"], shown["thread_id"], shown["kind"]) == ("shop", "t1", "decision")
    assert (shown["key"], shown["importance"]) == ("deploys", 0.5)
    assert (shown["categories"], shown["expires_at"]) == (["ops", "work"], "2999-01-01T00:00:00Z")


async def test_one_memory_is_shown_with_text_and_epoch_seconds(client, new_user, remember):
    row = await remember(new_user, "Alice drinks tea", app="claude", created_at="2020-01-01T00:00:00Z")
    answer = await client.get(f"/api/v1/memories/{row['id']}", params={"user_id": new_user})
    shown = answer.json()
    assert list(shown)[:8] == [
        "id", "text", "created_at", "state", "app_id", "app_name", "categories", "metadata_",
    ]  # fmt: skip
    assert (shown["text"], shown["created_at"], shown["app_name"]) == ("Alice drinks tea", 1577836800, "claude")


async def test_a_memory_without_a_user_is_its_owners_where_no_credential_is_asked_for(client, services, remember):
    other = await remember(f"other-{uuid4()}", "not the default user's")
    row = await remember(services.settings.access.default_user, f"the default user's {uuid4()}")
    for each in (other, row):
        assert (await client.get(f"/api/v1/memories/{each['id']}")).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("GET", "/history", None),
        ("GET", "/access-log", None),
        ("PUT", "", {"memory_content": "mine now"}),
    ],
)
async def test_a_memory_of_somebody_else_is_not_found(client, new_user, remember, method, path, body):
    row = await remember(new_user, "a secret")
    await remember(f"{new_user}-other", "something")
    body = body and body | {"user_id": f"{new_user}-other"}
    answer = await client.request(
        method, f"/api/v1/memories/{row['id']}{path}", params={"user_id": f"{new_user}-other"}, json=body
    )
    assert (answer.status_code, answer.json()) == (
        404, {"error": "memory_not_found", "detail": "Memory not found", "hint": None},
    )  # fmt: skip


async def test_a_list_is_a_page_of_memories_with_epoch_seconds(client, new_user, remember):
    for number in range(3):
        await remember(new_user, f"memory {number}", created_at=f"2020-01-0{number + 1}T00:00:00Z")
    answer = await client.get("/api/v1/memories/", params={"user_id": new_user, "size": 2})
    page = answer.json()
    assert list(page) == ["items", "total", "page", "size", "pages"]
    assert (page["total"], page["page"], page["size"], page["pages"]) == (3, 1, 2, 2)
    assert [list(item) for item in page["items"]] == [LISTED, LISTED]
    assert [item["content"] for item in page["items"]] == ["memory 2", "memory 1"]
    assert page["items"][0]["created_at"] == 1578009600


async def test_the_list_of_an_unknown_user_is_empty(client, new_user):
    answer = await client.get("/api/v1/memories/", params={"user_id": new_user})
    assert (answer.status_code, answer.json()["items"], answer.json()["total"]) == (200, [], 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"categories": "red, blue"}, {"one", "two"}),
        ({"categories": "green"}, set()),
        ({"search_query": "TW"}, {"two"}),
        ({"namespace": "shop"}, {"two"}),
        ({"thread_id": "t"}, {"three"}),
        ({"kind": "decision"}, {"three"}),
        ({"from_date": 1577923200}, {"two", "three"}),
        ({"to_date": 1577923200}, {"one", "two"}),
        ({"state": "archived"}, set()),
        ({"state": "active,archived"}, {"one", "two", "three"}),
    ],
)
async def test_a_list_can_be_narrowed(client, new_user, remember, filters, found):
    await remember(new_user, "one", categories=["red"], created_at="2020-01-01T00:00:00Z")
    await remember(new_user, "two", categories=["blue"], namespace="shop", created_at="2020-01-02T00:00:00Z")
    await remember(new_user, "three", thread_id="t", kind="decision", created_at="2020-01-03T00:00:00Z")
    answer = await client.get("/api/v1/memories", params={"user_id": new_user} | filters)
    assert {item["content"] for item in answer.json()["items"]} == found


@pytest.mark.parametrize(
    ("column", "direction", "order"),
    [
        ("content", "asc", "abc"),
        ("content", "DESC", "cba"),
        ("no_such_column", "asc", "bac"),
        (None, None, "bac"),
    ],
)
async def test_a_list_is_sorted_by_a_known_column_and_newest_first_otherwise(
    client, new_user, remember, column, direction, order
):
    for day, text in enumerate("cab", start=1):
        await remember(new_user, text, created_at=f"2020-01-0{day}T00:00:00Z")
    params = {"user_id": new_user} | ({"sort_column": column, "sort_direction": direction} if column else {})
    answer = await client.get("/api/v1/memories", params=params)
    assert "".join(item["content"] for item in answer.json()["items"]) == order


async def test_a_list_can_be_narrowed_to_an_app(client, new_user, remember):
    row = await remember(new_user, "by claude", app="claude")
    await remember(new_user, "by cursor", app="cursor")
    answer = await client.get("/api/v1/memories", params={"user_id": new_user, "app_id": row["app_id"]})
    assert [item["content"] for item in answer.json()["items"]] == ["by claude"]


async def test_an_update_answers_the_row_and_the_new_text_is_found(client, new_user, remember, eventually, services):
    row = await remember(new_user, "Alice drinks tea")
    body = {"memory_id": row["id"], "memory_content": "Alice drives a tractor", "user_id": new_user}
    answer = await client.put(f"/api/v1/memories/{row['id']}", json=body)
    assert (answer.status_code, list(answer.json())) == (200, ROW)
    assert answer.json()["content"] == "Alice drives a tractor"
    await services.outbox_delivery.drain()
    found = (await client.get("/api/v1/memories/search", params={"user_id": new_user, "query": "vehicle"})).json()
    assert [result["memory"] for result in found["results"]] == ["Alice drives a tractor"]
    history = (await client.get(f"/api/v1/memories/{row['id']}/history", params={"user_id": new_user})).json()
    assert [revision["new_text"] for revision in history["revisions"]] == ["Alice drinks tea", "Alice drives a tractor"]


async def test_an_update_may_change_only_metadata_or_categories(client, new_user, remember):
    row = await remember(new_user, "Alice drinks tea")
    body = {"user_id": new_user, "metadata": {"seen": True}, "categories": ["food"]}
    answer = await client.put(f"/api/v1/memories/{row['id']}", json=body)
    assert (answer.json()["content"], answer.json()["metadata_"]) == ("Alice drinks tea", {"seen": True})


async def test_an_update_of_nothing_is_refused(client, new_user, remember):
    row = await remember(new_user, "Alice drinks tea")
    answer = await client.put(f"/api/v1/memories/{row['id']}", json={"user_id": new_user})
    assert answer.status_code == 422
    assert (
        answer.json()["detail"]
        == "memory_content: is required, or one of metadata, categories, expires_at and ttl_days"
    )


async def test_deleting_is_soft_and_all_or_none(client, new_user, remember):
    rows = [await remember(new_user, text) for text in ("one", "two")]
    missing = {"memory_ids": [rows[0]["id"], str(uuid4())], "user_id": new_user}
    assert (await client.request("DELETE", "/api/v1/memories/", json=missing)).status_code == 404
    both = {"memory_ids": [row["id"] for row in rows], "user_id": new_user}
    answer = await client.request("DELETE", "/api/v1/memories/", json=both)
    assert (answer.status_code, answer.json()) == (200, {"message": "Successfully deleted 2 memories"})
    shown = await client.get(f"/api/v1/memories/{rows[0]['id']}", params={"user_id": new_user})
    assert shown.json()["state"] == "deleted"


async def test_somebody_else_cannot_delete(client, new_user, remember):
    row = await remember(new_user, "a secret")
    await remember(f"{new_user}-other", "something")
    body = {"memory_ids": [row["id"]], "user_id": f"{new_user}-other"}
    assert (await client.request("DELETE", "/api/v1/memories", json=body)).status_code == 404


async def test_a_filter_shows_active_and_paused_and_archived_on_demand(client, new_user, remember):
    rows = {text: await remember(new_user, text) for text in ("active", "paused", "archived", "deleted")}
    for state in ("paused", "archived", "deleted"):
        body = {"user_id": new_user, "memory_ids": [rows[state]["id"]], "state": state}
        assert (await client.post("/api/v1/memories/actions/pause", json=body)).status_code == 200
    usual = (await client.post("/api/v1/memories/filter", json={"user_id": new_user})).json()
    everything = (
        await client.post("/api/v1/memories/filter", json={"user_id": new_user, "show_archived": True})
    ).json()
    assert list(usual) == ["items", "total", "page", "size", "pages"]
    assert usual["size"] == 10
    assert {item["content"] for item in usual["items"]} == {"active", "paused"}
    assert {item["state"] for item in everything["items"]} == {"active", "paused", "archived"}


@pytest.mark.parametrize(
    ("sorting", "order"),
    [
        ({"sort_column": "memory", "sort_direction": "ASC"}, "abc"),
        ({"sort_column": "app_name", "sort_direction": "desc"}, "bac"),
        ({"sort_column": "memory"}, "bac"),
        ({}, "bac"),
    ],
)
async def test_a_filter_sorts_only_when_column_and_direction_are_given(client, new_user, remember, sorting, order):
    for day, text in enumerate("cab", start=1):
        await remember(new_user, text, app=f"app{day}", created_at=f"2020-01-0{day}T00:00:00Z")
    answer = await client.post("/api/v1/memories/filter", json={"user_id": new_user} | sorting)
    assert "".join(item["content"] for item in answer.json()["items"]) == order


@pytest.mark.parametrize(
    ("sorting", "detail"),
    [
        ({"sort_column": "vector", "sort_direction": "asc"}, "Invalid sort column"),
        ({"sort_column": "memory", "sort_direction": "sideways"}, "Invalid sort direction"),
    ],
)
async def test_a_filter_refuses_an_unknown_sorting_as_openmemory_did(client, new_user, sorting, detail):
    answer = await client.post("/api/v1/memories/filter", json={"user_id": new_user} | sorting)
    assert (answer.status_code, answer.json()) == (400, {"error": "bad_request", "detail": detail, "hint": None})


async def test_the_access_log_has_naive_times_and_assistants_first(client, new_user, remember):
    row = await remember(new_user, "Alice drinks tea", app="claude")
    url = f"/api/v1/memories/{row['id']}"
    await client.get(url, params={"user_id": new_user})
    await client.post("/api/v1/memories/search", json={"user_id": new_user, "query": "tea", "app": "cursor"})
    await client.put(url, json={"user_id": new_user, "memory_content": "Alice drinks coffee"})
    page = (await client.get(f"{url}/access-log", params={"user_id": new_user})).json()
    assert list(page) == ["total", "page", "page_size", "logs"]
    assert (page["page"], page["page_size"]) == (1, 10)
    assert [entry["access_type"] for entry in page["logs"]] == ["search", "update"]
    assert list(page["logs"][0]) == [
        "id", "memory_id", "app_id", "accessed_at", "access_type", "metadata_", "app_name", "count",
        "first_accessed_at",
    ]  # fmt: skip
    assert is_naive(page["logs"][0]["accessed_at"])


async def test_a_paused_app_cannot_add(client, new_user, remember):
    row = await remember(new_user, "before", app="claude")
    await client.put(f"/api/v1/apps/{row['app_id']}", params={"is_active": False, "user_id": new_user})
    answer = await client.post("/api/v1/memories", json={"user_id": new_user, "text": "after", "app": "claude"})
    assert (answer.status_code, answer.json()["error"]) == (403, "app_paused")
    assert answer.json()["detail"] == "App claude is currently paused on OpenMemory. Cannot create new memories."


@pytest.mark.parametrize("moment", ["0001-01-01T00:00:00Z", "1969-07-20T20:17:40Z", "9999-12-31T23:59:59Z"])
async def test_a_memory_of_any_time_is_listed_shown_and_found(client, new_user, remember, moment):
    row = await remember(new_user, "coffee", created_at=moment)
    expected = int(datetime.fromisoformat(moment).timestamp())
    for answer in (
        await client.get("/api/v1/memories", params={"user_id": new_user}),
        await client.get("/api/v1/memories", params={"user_id": new_user, "from_date": expected}),
    ):
        assert [item["created_at"] for item in answer.json()["items"]] == [expected]
    shown = await client.get(f"/api/v1/memories/{row['id']}", params={"user_id": new_user})
    assert shown.json()["created_at"] == expected
    found = await client.get("/api/v1/memories/search", params={"user_id": new_user, "query": "coffee"})
    assert len(found.json()["results"]) == 1


@pytest.mark.parametrize(
    ("more", "detail"),
    [
        ({"created_at": "9999-12-31T23:59:59-14:00"}, "created_at: must lie within the years 1 to 9999 in UTC"),
        ({"created_at": "0001-01-01T00:00:00+14:00"}, "created_at: must lie within the years 1 to 9999 in UTC"),
        ({"expires_at": "2030-01-01T00:00:00"}, "expires_at: must carry an offset from UTC"),
        ({"metadata": {"a": [1e308]}}, None),
        ({"text": "a\x00b"}, "text: must not contain the NUL character"),
        ({"user_id": "a\x00b"}, "user_id: must not contain control characters"),
        ({"app": "\x00"}, "app: must not contain control characters"),
        ({"app": "x" * 257}, "app: has 257 characters; the limit is 256 (limits.name)"),
        ({"importance": "NaN"}, "importance: input should be"),
    ],
)
async def test_what_cannot_be_remembered_is_refused_in_words(client, new_user, more, detail):
    answer = await client.post("/api/v1/memories", json={"user_id": new_user, "text": "t"} | more)
    assert answer.is_success is (detail is None), answer.text
    if detail is not None:
        assert answer.status_code in (413, 422)
        assert answer.json()["detail"].startswith(detail)


async def test_a_number_that_json_cannot_say_is_refused(client, new_user):
    content = f'{{"user_id": "{new_user}", "text": "t", "metadata": {{"a": [1e999]}}}}'
    answer = await client.post("/api/v1/memories", content=content, headers={"Content-Type": "application/json"})
    assert (answer.status_code, answer.json()["detail"]) == (
        422, "metadata.a: must be a finite number",
    )  # fmt: skip

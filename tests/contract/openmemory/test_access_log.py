"""`GET /api/v1/memories/{id}/access-log`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from tests.contract.openmemory.shapes import LOGGED, assert_shape


async def log(api, user: str, memory_id: str, slash: str = "", **params: object) -> dict:
    answer = await api.get(f"/api/v1/memories/{memory_id}/access-log{slash}", params={"user_id": user} | params)
    assert answer.status_code == 200, answer.text
    page: dict = answer.json()
    return page


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_log_is_a_page_of_ten_with_naive_times(api, new_user, remember, slash):
    row = await remember("one")
    await api.get(f"/api/v1/memories/{row['id']}", params={"user_id": new_user})
    page = await log(api, new_user, row["id"], slash)
    assert list(page) == ["total", "page", "page_size", "logs"]
    assert (page["total"], page["page"], page["page_size"]) == (1, 1, 10)
    [entry] = page["logs"]
    assert_shape(entry, LOGGED, whole=True)
    assert (entry["memory_id"], entry["app_name"], entry["access_type"]) == (row["id"], "openmemory", "get")
    # The page appends a Z: what it shows is now.
    shown = datetime.fromisoformat(entry["accessed_at"] + "Z")
    assert abs(datetime.now(UTC) - shown) < timedelta(minutes=1)


async def test_a_log_is_newest_first_and_goes_on_on_the_next_page(api, new_user, remember):
    row = await remember("one")
    for _ in range(3):
        await api.get(f"/api/v1/memories/{row['id']}", params={"user_id": new_user})
    await api.get("/api/v1/memories/", params={"user_id": new_user})
    pages = [await log(api, new_user, row["id"], page=number, page_size=3) for number in (1, 2, 3)]
    entries = [entry for page in pages for entry in page["logs"]]
    assert [len(page["logs"]) for page in pages] == [3, 1, 0]
    assert {page["total"] for page in pages} == {4}
    assert [entry["access_type"] for entry in entries] == ["list", "get", "get", "get"]
    times = [entry["accessed_at"] for entry in entries]
    assert times == sorted(times, reverse=True)


async def test_a_search_of_an_app_is_logged_as_its_search(api, new_user, remember):
    row = await remember("Alice drinks tea")
    body = {"user_id": new_user, "query": "tea", "app": "cursor"}
    await api.post("/api/v1/memories/search", json=body)
    [entry] = (await log(api, new_user, row["id"]))["logs"]
    assert (entry["app_name"], entry["access_type"]) == ("cursor", "search")
    assert {"query", "score", "hash"} <= entry["metadata_"].keys()


@pytest.mark.parametrize(
    ("params", "status"), [({"page_size": 100}, 200), ({"page_size": 101}, 422), ({"page": 0}, 422)]
)
async def test_a_log_has_bounds(api, new_user, remember, params, status):
    row = await remember("one")
    answer = await api.get(f"/api/v1/memories/{row['id']}/access-log", params={"user_id": new_user} | params)
    assert answer.status_code == status


async def test_an_unknown_memory_has_no_log(api):
    answer = await api.get(f"/api/v1/memories/{uuid4()}/access-log")
    assert (answer.status_code, answer.json()["detail"]) == (404, "Memory not found")

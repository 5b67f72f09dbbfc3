"""`GET /api/v1/memories/{id}/access-log`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from sqlalchemy import text

from tests.contract.openmemory.shapes import LOGGED, assert_shape


async def log(api, user: str, memory_id: str, slash: str = "", **params: object) -> dict:
    answer = await api.get(f"/api/v1/memories/{memory_id}/access-log{slash}", params={"user_id": user} | params)
    assert answer.status_code == 200, answer.text
    page: dict = answer.json()
    return page


async def search(api, user: str, app: str, query: str = "tea") -> None:
    answer = await api.post("/api/v1/memories/search", json={"user_id": user, "query": query, "app": app})
    assert answer.json()["results"]


@pytest.mark.parametrize("slash", ["", "/"])
async def test_a_log_is_a_page_of_ten_with_naive_times(api, new_user, remember, slash):
    row = await remember("Alice drinks tea")
    await search(api, new_user, "cursor")
    page = await log(api, new_user, row["id"], slash)
    assert list(page) == ["total", "page", "page_size", "logs"]
    assert (page["total"], page["page"], page["page_size"]) == (1, 1, 10)
    [entry] = page["logs"]
    assert_shape(entry, LOGGED)
    assert (entry["memory_id"], entry["app_name"], entry["access_type"]) == (row["id"], "cursor", "search")
    # The page appends a Z: what it shows is now.
    shown = datetime.fromisoformat(entry["accessed_at"] + "Z")
    assert abs(datetime.now(UTC) - shown) < timedelta(minutes=1)


async def test_a_log_is_newest_first_and_goes_on_on_the_next_page(api, new_user, remember):
    row = await remember("Alice drinks tea")
    for app in ("zed", "cursor", "claude", "windsurf"):
        await search(api, new_user, app)
    pages = [await log(api, new_user, row["id"], page=number, page_size=3) for number in (1, 2, 3)]
    entries = [entry for page in pages for entry in page["logs"]]
    assert [len(page["logs"]) for page in pages] == [3, 1, 0]
    assert {page["total"] for page in pages} == {4}
    assert [entry["app_name"] for entry in entries] == ["windsurf", "claude", "cursor", "zed"]
    times = [entry["accessed_at"] for entry in entries]
    assert times == sorted(times, reverse=True)


async def test_what_the_page_shows_is_no_access_of_an_app(api, new_user, remember):
    """Otherwise a quarter of an hour with the page would bury what assistants have read."""
    row = await remember("Alice drinks tea", categories=["food"])
    who = {"user_id": new_user}
    for path in (
        "", f"/{row['id']}", f"/{row['id']}/related", f"/{row['id']}/history", f"/search?query=tea&user_id={new_user}",
        f"/../apps/{row['app_id']}/memories",
    ):  # fmt: skip
        assert (await api.get(f"/api/v1/memories{path}", params=None if "?" in path else who)).is_success
    assert (await api.post("/api/v1/memories/filter", json=who)).json()["total"] == 1
    assert (await log(api, new_user, row["id"]))["logs"] == []
    events = (await api.get("/api/v1/audit", params=who)).json()["events"]
    assert {"memory.list", "memory.get"} <= {event["event"] for event in events}


async def test_repeated_reads_of_an_app_are_one_entry_and_assistants_come_first(api, services, new_user, remember):
    row = await remember("Alice drinks tea")
    for app in ("cursor", "claude", "cursor", "cursor"):
        await search(api, new_user, app)
    body = {"user_id": new_user, "memory_content": "Alice drinks green tea"}
    await api.put(f"/api/v1/memories/{row['id']}", json=body)
    page = await log(api, new_user, row["id"])
    shown = [(entry["app_name"], entry["access_type"], entry["count"]) for entry in page["logs"]]
    assert shown == [("cursor", "search", 3), ("claude", "search", 1), ("openmemory", "update", 1)]
    assert page["total"] == 3
    assert page["logs"][0]["first_accessed_at"] < page["logs"][1]["accessed_at"] < page["logs"][0]["accessed_at"]
    each = await log(api, new_user, row["id"], fold="false")
    assert ([entry["count"] for entry in each["logs"]], each["total"]) == ([1] * 5, 5)
    async with services.database.statement() as tx:
        await tx.execute(
            text("UPDATE memory_access_logs SET accessed_at = accessed_at - interval '61 minutes' WHERE id = :id"),
            {"id": each["logs"][3]["id"]},
        )
    assert [entry["count"] for entry in (await log(api, new_user, row["id"]))["logs"]] == [2, 1, 1, 1]


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

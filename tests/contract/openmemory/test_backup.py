"""Export and import, statement by statement: paths, names, shapes, messages; and what was broken in them, mended."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import httpx
import pytest

from openmemory.services import Services
from tests.backup.archives import (
    EXPORT,
    IMPORT,
    Upstream,
    bring_in,
    compressed,
    export,
    lines_of,
    members,
    send,
    tables_of,
    zipped,
)

Remember = Callable[..., Awaitable[dict[str, Any]]]

KEYS = {
    "user": {"id", "user_id", "name", "email", "metadata", "created_at", "updated_at"},
    "apps": {"id", "owner_id", "name", "description", "metadata", "is_active", "created_at", "updated_at"},
    "categories": {"id", "name", "description", "created_at", "updated_at"},
    "memories": {
        "id", "user_id", "app_id", "content", "metadata", "state", "created_at", "updated_at", "archived_at",
        "deleted_at", "category_ids",
    },
    "memory_categories": {"memory_id", "category_id"},
    "status_history": {"id", "memory_id", "changed_by", "old_state", "new_state", "changed_at"},
    "access_controls": {"id", "subject_type", "subject_id", "object_type", "object_id", "effect", "created_at"},
    "export_meta": {"app_id_filter", "from_date", "to_date", "version", "generated_at"},
}  # fmt: skip
WITH_OFFSET = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?\+00:00")
STATES = ("active", "paused", "archived", "deleted")


@pytest.fixture
async def user(services: Services, new_user: str) -> str:
    """A user that is there and has nothing."""
    await services.directory.caller(new_user, None, owner=True)
    return new_user


@pytest.fixture
async def full(api: httpx.AsyncClient, remember: Remember, new_user: str) -> dict[str, str]:
    """A user with a memory in every state, a rule and categories; the ids by state."""
    ids = {}
    for number, state in enumerate(STATES):
        row = await remember(f"a memory that is {state}", categories=[f"work of {new_user}"], metadata={"n": number})
        ids[state] = row["id"]
        if state != "active":
            body = {"memory_ids": [row["id"]], "state": state, "user_id": new_user}
            assert (await api.post("/api/v1/memories/actions/pause", json=body)).status_code == 200
    await remember("by another app", app="claude")
    rule = {"user_id": new_user, "effect": "deny", "app": "claude", "object_type": "memory", "object": ids["active"]}
    assert (await api.post("/api/v1/grants", json=rule)).status_code in (200, 201)
    return ids


# POST /export


@pytest.mark.slow
@pytest.mark.parametrize("path", [EXPORT, f"{EXPORT}/"])
async def test_an_export_is_a_zip_named_after_the_user(
    api: httpx.AsyncClient, full: dict[str, str], new_user: str, path: str
) -> None:
    answer = await api.post(path, json={"user_id": new_user})
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "application/zip"
    assert answer.headers["content-disposition"] == f'attachment; filename="memories_export_{new_user}.zip"'
    assert int(answer.headers["content-length"]) == len(answer.content)
    assert {"memories.json", "memories.jsonl.gz"} <= members(answer.content).keys()


async def test_the_tables_have_their_keys(api: httpx.AsyncClient, full: dict[str, str], new_user: str) -> None:
    tables = tables_of(await export(api, new_user))
    assert [key for key in tables if key in KEYS] == list(KEYS)
    for name, keys in KEYS.items():
        rows = tables[name] if isinstance(tables[name], list) else [tables[name]]
        assert rows, name
        for row in rows:
            assert keys <= row.keys(), name


async def test_the_tables_have_their_types(api: httpx.AsyncClient, full: dict[str, str], new_user: str) -> None:
    """What OpenMemory's import did with each value can be done with ours."""
    tables = tables_of(await export(api, new_user))
    assert tables["user"]["user_id"] == new_user
    user = UUID(tables["user"]["id"])
    apps = {UUID(row["id"]): row["name"] for row in tables["apps"]}
    assert set(apps.values()) == {"openmemory", "claude"}
    categories = {UUID(row["id"]): row["name"] for row in tables["categories"]}
    for row in tables["memories"]:
        assert (UUID(row["user_id"]), row["state"] in STATES) == (user, True)
        assert UUID(row["app_id"]) in apps
        assert isinstance(row["content"], str)
        assert isinstance(row["metadata"], dict)
        assert {UUID(each) for each in row["category_ids"]} <= categories.keys()
        for name in ("created_at", "updated_at"):
            assert WITH_OFFSET.fullmatch(row[name])
        for name in ("archived_at", "deleted_at"):
            assert row[name] is None or WITH_OFFSET.fullmatch(row[name])
    ids = {row["id"] for row in tables["memories"]}
    filed = {(row["id"], each) for row in tables["memories"] for each in row["category_ids"]}
    assert {(row["memory_id"], row["category_id"]) for row in tables["memory_categories"]} == filed
    for row in tables["status_history"]:
        assert row["memory_id"] in ids
        assert UUID(row["changed_by"]) == user
        assert row["new_state"] in STATES
        assert WITH_OFFSET.fullmatch(row["changed_at"])
    [rule] = tables["access_controls"]
    assert (rule["subject_type"], rule["object_type"], rule["object_id"], rule["effect"]) == (
        "app", "memory", full["active"], "deny",
    )  # fmt: skip
    assert apps[UUID(rule["subject_id"])] == "claude"
    meta = tables["export_meta"]
    assert (meta["version"], meta["app_id_filter"], meta["from_date"], meta["to_date"]) == ("1", None, None, None)
    assert WITH_OFFSET.fullmatch(meta["generated_at"])


async def test_every_line_has_its_keys(api: httpx.AsyncClient, full: dict[str, str], new_user: str) -> None:
    lines = lines_of(await export(api, new_user), "memories.jsonl.gz")
    assert len(lines) == 5
    for line in lines:
        assert line.keys() == {"id", "content", "metadata", "created_at", "updated_at", "state", "app", "categories"}
    [line] = [line for line in lines if line["id"] == full["active"]]
    assert (line["content"], line["app"], line["categories"], line["metadata"]) == (
        "a memory that is active", "openmemory", [f"work of {new_user}"], {"n": 0},
    )  # fmt: skip


async def test_all_states_are_exported_deleted_too(api: httpx.AsyncClient, full: dict[str, str], new_user: str) -> None:
    found = {row["id"]: row["state"] for row in tables_of(await export(api, new_user))["memories"]}
    assert {id_: state for state, id_ in full.items()}.items() <= found.items()


async def test_the_memories_of_an_app_alone(api: httpx.AsyncClient, full: dict[str, str], new_user: str) -> None:
    tables = tables_of(await export(api, new_user))
    [claude] = [row["id"] for row in tables["apps"] if row["name"] == "claude"]
    tables = tables_of(await export(api, new_user, app_id=claude))
    assert [row["content"] for row in tables["memories"]] == ["by another app"]
    assert {row["memory_id"] for row in tables["status_history"]} == {tables["memories"][0]["id"]}
    assert tables["memory_categories"] == tables["access_controls"] == []
    assert tables["export_meta"]["app_id_filter"] == claude


@pytest.mark.slow
@pytest.mark.parametrize(("field", "away", "count"), [
    ("from_date", -60, 5), ("from_date", 60, 0), ("to_date", 60, 5), ("to_date", -60, 0),
])  # fmt: skip
async def test_the_memories_of_a_time_alone(
    api: httpx.AsyncClient, full: dict[str, str], new_user: str, field: str, away: int, count: int
) -> None:
    seconds = int((datetime.now(UTC) + timedelta(seconds=away)).timestamp())
    tables = tables_of(await export(api, new_user, **{field: seconds}))
    assert len(tables["memories"]) == count
    assert tables["export_meta"][field] == seconds


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "there"), [({}, True), ({"include_vectors": True}, True), ({"include_vectors": False}, False)]
)
async def test_include_vectors_works(
    api: httpx.AsyncClient, services: Services, full: dict[str, str], new_user: str, body: dict[str, Any], there: bool
) -> None:
    await services.outbox_delivery.drain()
    archive = await export(api, new_user, **body)
    assert ("vectors.jsonl.gz" in members(archive)) is there
    if there:
        assert full["active"] in {line["id"] for line in lines_of(archive, "vectors.jsonl.gz")}


async def test_an_unknown_user_is_not_found(api: httpx.AsyncClient) -> None:
    answer = await api.post(EXPORT, json={"user_id": "nobody-at-all"})
    assert (answer.status_code, answer.json()["detail"]) == (404, "User not found")


# POST /import


@pytest.mark.parametrize("path", [IMPORT, f"{IMPORT}/"])
async def test_an_import_says_into_whose_memory(api: httpx.AsyncClient, user: str, path: str) -> None:
    answer = await api.post(path, files={"file": ("backup.zip", Upstream().zip())}, data={"user_id": user})
    assert answer.status_code == 200, answer.text
    assert answer.json()["message"] == f'Import completed into user "{user}"'


async def test_the_order_of_the_form_does_not_matter(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream().zip()
    form = [("user_id", (None, user)), ("file", ("backup.zip", archive))]
    assert (await api.post(IMPORT, files=form)).status_code == 200  # type: ignore[arg-type]
    assert (await api.post(IMPORT, files=form[::-1])).status_code == 200  # type: ignore[arg-type]


@pytest.mark.parametrize(("what", "status", "detail"), [
    ({"name": "backup.tar"}, 400, "Expected a zip file."),
    ({"params": {"mode": "merge"}}, 400, "Invalid mode. Must be 'skip' or 'overwrite'."),
    ({"archive": b"no zip"}, 400, "Invalid zip file"),
    ({"archive": zipped({"something": b"else"})}, 400, "Invalid zip file: memories.json is missing"),
    ({"user": "nobody-at-all"}, 404, "User not found"),
])  # fmt: skip
async def test_what_cannot_be_brought_in_is_refused(
    api: httpx.AsyncClient, user: str, what: dict[str, Any], status: int, detail: str
) -> None:
    given = {"user": user, "archive": Upstream().zip()} | what
    answer = await send(api, given.pop("user"), given.pop("archive"), **given)
    assert answer.status_code == status
    assert answer.json()["detail"].startswith(detail)


@pytest.mark.parametrize(("form", "words"), [
    ({"files": {"user_id": (None, "alice")}}, "file: is required, as a file"),
])  # fmt: skip
async def test_a_form_that_lacks_something_is_refused(api: httpx.AsyncClient, form: dict[str, Any], words: str) -> None:
    answer = await api.post(IMPORT, **form)
    assert (answer.status_code, answer.json()["detail"]) == (422, words)


def rich() -> tuple[Upstream, dict[str, str]]:
    """An archive as OpenMemory wrote it, with all that it could hold; the ids of its memories by name."""
    archive = Upstream()
    claude = archive.app("claude", metadata={"v": 1}, description="An assistant")
    archive.app("cursor", is_active=False)
    food, work = archive.category("food"), archive.category("work")
    ids = {
        "plain": archive.memory("likes tea", categories=[food], metadata={"mcp_client": "claude"}, app_id=claude),
        "paused": archive.memory("works late", state="paused", categories=[food, work]),
        "archived": archive.memory("lives in Oslo", state="archived", archived_at="2025-05-06T10:00:00+00:00"),
        "deleted": archive.memory("drove a Fiat", state="deleted", deleted_at="2025-05-07T10:00:00+00:00"),
    }
    for id_ in ids.values():
        archive.change(id_, "deleted", "active")
    archive.change(ids["paused"], "active", "paused", "2025-05-05T10:00:00+00:00")
    archive.change(ids["archived"], "active", "archived", "2025-05-06T10:00:00+00:00")
    archive.change(ids["deleted"], "active", "deleted", "2025-05-07T10:00:00+00:00")
    archive.rule(claude, "deny", ids["plain"])
    return archive, ids


@pytest.mark.parametrize("folder", ["", "backup/2025/"])
async def test_an_archive_of_openmemory_comes_in_right(api: httpx.AsyncClient, user: str, folder: str) -> None:
    archive, ids = rich()
    report = await bring_in(api, user, archive.zip(folder=folder))
    assert (report["memories"]["added"], report["history"], report["rules"], report["left_out"]) == (4, 7, 1, [])
    found = tables_of(await export(api, user))
    before = archive.tables
    mine = found["user"]["id"]
    names = {row["id"]: row["name"] for rows in (before["apps"], found["apps"], found["categories"]) for row in rows}
    names |= {row["id"]: row["name"] for row in before["categories"]}
    there = {row["id"]: row for row in found["memories"]}
    assert set(there) == set(ids.values())
    for row in before["memories"]:
        new = there[row["id"]]
        for key in ("content", "metadata", "state", "created_at", "updated_at", "archived_at", "deleted_at"):
            assert new[key] == row[key], key
        assert names[new["app_id"]] == names[row["app_id"]]
        assert {names[each] for each in new["category_ids"]} == {names[each] for each in row["category_ids"]}
        assert new["user_id"] == mine
    apps = {row["name"]: row for row in found["apps"]}
    assert apps["cursor"]["is_active"] is False
    assert (apps["claude"]["description"], apps["claude"]["metadata"]) == ("An assistant", {"v": 1})
    history = {row["id"]: row for row in found["status_history"]}
    assert len(history) == len(before["status_history"])
    for row in before["status_history"]:
        new = history[row["id"]]
        assert new["old_state"] == (None if row["old_state"] == "deleted" else row["old_state"])
        assert (new["new_state"], new["changed_at"], new["changed_by"]) == (row["new_state"], row["changed_at"], mine)
    [rule] = found["access_controls"]
    assert (names[rule["subject_id"]], rule["object_id"], rule["effect"]) == ("claude", ids["plain"], "deny")


async def test_a_rule_without_an_object_is_about_everything(api: httpx.AsyncClient, user: str) -> None:
    archive, _ = rich()
    archive.tables["access_controls"].clear()
    archive.rule(archive.app_id, "deny")
    await bring_in(api, user, archive.zip())
    grants = (await api.get("/api/v1/grants", params={"user_id": user})).json()
    [grant] = grants["grants"] if isinstance(grants, dict) else grants
    assert (grant["app"], grant["object_type"], grant["object"], grant["effect"]) == ("openmemory", "all", None, "deny")


async def test_what_was_deleted_is_not_found_and_what_is_active_is(
    api: httpx.AsyncClient, services: Services, user: str
) -> None:
    archive, ids = rich()
    await bring_in(api, user, archive.zip())
    await services.outbox_delivery.drain()
    answer = await api.post("/api/v1/memories/search", json={"user_id": user, "query": "which beverage does she like"})
    assert [result["id"] for result in answer.json()["results"]] == [ids["plain"]]
    owner = await services.directory.caller(user, None, owner=True)
    assert await services.index.count(owner.user_id) == 1


async def test_categories_are_matched_by_name(api: httpx.AsyncClient, remember: Remember, new_user: str) -> None:
    await remember("something", categories=["food"])
    archive = Upstream()
    archive.memory("something else", categories=[archive.category("food")])
    await bring_in(api, new_user, archive.zip())
    categories = (await export(api, new_user), "categories")
    assert [row["name"] for row in tables_of(categories[0])["categories"]] == ["food"]


async def test_an_id_of_another_user_becomes_a_new_one_and_all_follows(
    api: httpx.AsyncClient, services: Services, user: str
) -> None:
    other = f"{user}-other"
    await services.directory.caller(other, None, owner=True)
    archive, ids = rich()
    await bring_in(api, other, archive.zip())
    report = await bring_in(api, user, archive.zip())
    assert report["memories"]["renamed"] == 4
    tables = tables_of(await export(api, user))
    new = {row["content"]: row["id"] for row in tables["memories"]}
    assert not set(new.values()) & set(ids.values())
    assert {row["memory_id"] for row in tables["status_history"]} == set(new.values())
    assert {row["memory_id"] for row in tables["memory_categories"]} <= set(new.values())
    assert [row["object_id"] for row in tables["access_controls"]] == [new["likes tea"]]
    theirs = tables_of(await export(api, other))
    assert {row["id"] for row in theirs["memories"]} == set(ids.values())


async def test_skip_leaves_what_is_there(api: httpx.AsyncClient, user: str) -> None:
    archive, ids = rich()
    await bring_in(api, user, archive.zip())
    before = tables_of(await export(api, user))
    for row in archive.tables["memories"]:
        row["content"] += " no more"
    report = await bring_in(api, user, archive.zip(), params={"mode": "skip"})
    assert report["memories"]["skipped"] == len(ids)
    after = tables_of(await export(api, user))
    assert after["memories"] == before["memories"]


@pytest.mark.parametrize("params", [{}, {"mode": "overwrite"}])
async def test_overwrite_replaces_content_metadata_state_and_times(
    api: httpx.AsyncClient, user: str, params: dict[str, str]
) -> None:
    archive, ids = rich()
    await bring_in(api, user, archive.zip())
    [row] = [row for row in archive.tables["memories"] if row["id"] == ids["plain"]]
    row |= {
        "content": "likes coffee", "metadata": {"new": True}, "state": "archived",
        "created_at": "2025-01-01T00:00:00+00:00", "updated_at": "2025-06-01T00:00:00+00:00",
        "archived_at": "2025-06-01T00:00:00+00:00",
    }  # fmt: skip
    report = await bring_in(api, user, archive.zip(), params=params)
    assert (report["memories"]["replaced"], report["memories"]["unchanged"]) == (1, 3)
    tables = tables_of(await export(api, user))
    assert len(tables["memories"]) == 4
    [new] = [each for each in tables["memories"] if each["id"] == ids["plain"]]
    assert {key: new[key] for key in KEYS["memories"] - {"user_id", "app_id", "category_ids"}} == {
        key: row[key] for key in KEYS["memories"] - {"user_id", "app_id", "category_ids"}
    }


async def test_naive_times_and_missing_members_are_taken(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    memory = archive.memory("something", created_at="2025-05-03T10:00:00", updated_at=None)
    for name in ("categories", "memory_categories", "status_history", "access_controls"):
        del archive.tables[name]
    reordered = {key: archive.tables[key] for key in reversed(archive.tables)}
    await bring_in(api, user, zipped({"memories.json": json.dumps(reordered).encode(), "README": b"hello"}))
    [row] = tables_of(await export(api, user))["memories"]
    assert (row["id"], row["created_at"]) == (memory, "2025-05-03T10:00:00+00:00")


async def test_progress_comes_in_lines_for_who_asks(api: httpx.AsyncClient, user: str) -> None:
    archive, _ = rich()
    answer = await send(api, user, archive.zip(), headers={"Accept": "application/x-ndjson"})
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/x-ndjson")
    *told, done = [json.loads(line) for line in answer.text.splitlines()]
    assert {line["stage"] for line in told} == {"receiving", "reading", "checking", "writing"}
    for line in told:
        assert line.keys() == {"stage", "done", "total"}
        assert isinstance(line["done"], int)
        assert line["total"] is None or line["done"] <= line["total"]
    assert done["message"] == f'Import completed into user "{user}"'
    assert done["report"]["memories"]["added"] == 4
    answer = await send(api, user, b"rubbish", headers={"Accept": "application/x-ndjson"})
    *_, done = [json.loads(line) for line in answer.text.splitlines()]
    assert done["error"] == "invalid_archive"
    assert done["detail"].startswith("Invalid zip file")


@pytest.mark.slow
@pytest.mark.usefixtures("in_bulk")
async def test_who_goes_away_midway_leaves_all_or_nothing_and_nobody_waits(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    for number in range(2_000):
        archive.memory(f"memory number {number}")
    files, data = {"file": ("backup.zip", archive.zip())}, {"user_id": user}
    for _ in range(5):
        async with api.stream(
            "POST", IMPORT, files=files, data=data, headers={"Accept": "application/x-ndjson"}
        ) as answer:
            async for _ in answer.aiter_lines():
                break
    report = await bring_in(api, user, archive.zip())
    assert (report["memories"]["added"], report["memories"]["unchanged"]) in ((2_000, 0), (0, 2_000))
    assert len(tables_of(await export(api, user))["memories"]) == 2_000


async def test_lines_that_openmemory_did_not_need_may_be_missing(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    archive.memory("something")
    whole = members(archive.zip())
    report = await bring_in(api, user, zipped({"memories.json": whole["memories.json"]}))
    assert report["memories"]["added"] == 1
    strange = {"memories.json": whole["memories.json"], "memories.jsonl.gz": compressed([{"id": "x"}])}
    assert (await bring_in(api, user, zipped(strange)))["memories"]["unchanged"] == 1

"""What old installations wrote and what people write by hand comes in, as far as it can be understood."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.backup.archives import Upstream, bring_in, compressed, export, lines_of, new_id, tables_of, zipped


async def test_a_number_that_json_does_not_know_becomes_null_and_is_told(api: httpx.AsyncClient, user: str) -> None:
    """OpenMemory's export wrote NaN as Python does; that is no reason to refuse everything of the user."""
    archive = Upstream()
    odd = {"score": float("nan"), "list": [1, float("inf"), {"low": float("-inf"), "as it was": 0.5}]}
    memory = archive.memory("with a score", metadata=odd)
    archive.memory("without")
    report = await bring_in(api, user, archive.zip())
    assert (report["memories"]["added"], report["memories"]["left_out"]) == (2, 0)
    note = "metadata: 3 numbers that JSON does not allow, such as NaN, became null"
    assert (report["left_out"], report["mended"]) == ([], 3)
    assert report["notes"] == [{"kind": "memory", "id": memory, "note": note}]
    found = {row["content"]: row["metadata"] for row in tables_of(await export(api, user))["memories"]}
    assert found == {
        "with a score": {"score": None, "list": [1, None, {"low": None, "as it was": 0.5}]},
        "without": {},
    }


async def test_a_number_that_is_none_in_a_log_of_accesses_becomes_null(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    memory = archive.memory("something")
    log = {
        "id": new_id(), "memory_id": memory, "app_id": archive.app_id, "accessed_at": "2025-05-03T10:00:00+00:00",
        "access_type": "search", "metadata": {"score": float("nan")},
    }  # fmt: skip
    members = {"memories.json": json.dumps(archive.tables).encode(), "access_logs.jsonl.gz": compressed([log])}
    report = await bring_in(api, user, zipped(members))
    assert report["access_logs"] == 1
    assert [(each["kind"], each["id"]) for each in report["notes"]] == [("access_log", log["id"])]
    assert (report["left_out"], report["mended"]) == ([], 1)
    answer = await api.get(f"/api/v1/memories/{memory}/access-log", params={"user_id": user})
    assert [line["metadata_"] for line in answer.json()["logs"]] == [{"score": None}]


async def test_a_number_that_is_none_in_a_project_becomes_null_and_is_told(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    archive.memory("something")
    project = {"namespace": "shop", "metadata": {"score": float("nan")}}
    members = {"memories.json": json.dumps(archive.tables).encode(), "projects.jsonl.gz": compressed([project])}
    report = await bring_in(api, user, zipped(members))
    assert [(each["kind"], each["id"]) for each in report["notes"]] == [("project", "shop")]
    assert [line["metadata"] for line in lines_of(await export(api, user), "projects.jsonl.gz")] == [{"score": None}]


async def test_revisions_of_a_memory_that_is_not_there_are_told_of_once(api: httpx.AsyncClient, user: str) -> None:
    archive, gone = Upstream(), new_id()
    archive.memory("something")
    revisions = [{"memory_id": gone, "revision": number, "new_text": "x"} for number in (1, 2, 3)]
    members = {"memories.json": json.dumps(archive.tables).encode(), "revisions.jsonl.gz": compressed(revisions)}
    report = await bring_in(api, user, zipped(members))
    why = {"kind": "revision", "id": gone, "reason": "its memory is not in the archive"}
    assert (report["revisions"], report["left_out"]) == (1, [why])


@pytest.mark.parametrize(
    "change", [{"user": ...}, {"export_meta": ...}, {"export_meta": {}}, {"user": ..., "export_meta": ...}]
)
async def test_an_archive_that_says_nothing_about_itself_comes_in(
    api: httpx.AsyncClient, user: str, change: dict[str, Any]
) -> None:
    """OpenMemory's import read the lists and asked for neither."""
    archive = Upstream()
    archive.memory("something")
    for key, value in change.items():
        archive.tables[key] = value
    kept = {key: value for key, value in archive.tables.items() if value is not ...}
    report = await bring_in(api, user, zipped({"memories.json": json.dumps(kept).encode()}))
    assert report["memories"]["added"] == 1


async def test_the_version_may_be_a_number(api: httpx.AsyncClient, user: str) -> None:
    archive = Upstream()
    archive.memory("something")
    archive.tables["export_meta"]["version"] = 1
    assert (await bring_in(api, user, archive.zip()))["memories"]["added"] == 1

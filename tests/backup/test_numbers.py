"""Numbers of an archive: a whole one keeps every digit, however often it goes out and comes in."""

from __future__ import annotations

import json
from typing import Any

import httpx

from tests.backup.archives import Upstream, bring_in, compressed, export, lines_of, new_id, send, tables_of, zipped

LONG = {"id": 2**64, "low": -(2**63) - 1, "deep": [{"n": 123456789012345678901234567890}], "f": [1e30, 1e308, 0.1, 1.0]}


def same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


async def test_every_digit_survives_a_round_trip(api: httpx.AsyncClient, user: str) -> None:
    body = {"user_id": user, "text": "first", "infer": False, "metadata": LONG}
    added = (await api.post("/api/v1/memories", json=body)).json()
    change = {"user_id": user, "memory_content": "second", "metadata": {"n": 7**90}}
    await api.put(f"/api/v1/memories/{added['id']}", json=change)
    archive = await export(api, user)
    other = f"{user}-2"
    answer = await send(api, other, archive, params={"make_user": True})
    assert (answer.status_code, answer.json()["report"]["left_out"]) == (200, []), answer.text
    copy = await export(api, other)
    assert same(tables_of(copy)["memories"][0]["metadata"], {"n": 7**90})
    assert [line["metadata"] for line in lines_of(copy, "memories.jsonl.gz")] == [{"n": 7**90}]
    revisions = sorted(lines_of(copy, "revisions.jsonl.gz"), key=lambda line: line["revision"])
    assert same([line["metadata"] for line in revisions], [LONG, {"n": 7**90}])
    again = await bring_in(api, other, copy)
    assert again["memories"]["unchanged"] == 1


async def test_numbers_of_others_come_in_to_the_digit_beside_those_that_are_none(
    api: httpx.AsyncClient, user: str
) -> None:
    archive = Upstream()
    archive.app("long", metadata={"n": 2**80})
    memory = archive.memory("with numbers", metadata=LONG | {"none": float("nan")})
    log = {
        "id": new_id(), "memory_id": memory, "app_id": archive.app_id, "accessed_at": "2025-05-03T10:00:00+00:00",
        "access_type": "search", "metadata": {"n": 2**80},
    }  # fmt: skip
    members = {"memories.json": json.dumps(archive.tables).encode(), "access_logs.jsonl.gz": compressed([log])}
    report = await bring_in(api, user, zipped(members))
    assert (report["left_out"], report["mended"]) == ([], 1)
    found = tables_of(await export(api, user))
    assert same(found["memories"][0]["metadata"], LONG | {"none": None})
    assert {app["name"]: app["metadata"] for app in found["apps"]}["long"] == {"n": 2**80}
    logs = await api.get(f"/api/v1/memories/{memory}/access-log", params={"user_id": user})
    assert {"n": 2**80} in [line["metadata_"] for line in logs.json()["logs"]]

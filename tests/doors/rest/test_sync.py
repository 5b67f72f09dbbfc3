from __future__ import annotations

from uuid import UUID

import pytest
from sqlalchemy import func, select

from openmemory.health.service import Health
from openmemory.index.sync.reconcile import LOCK

STATISTICS = ["total_memories", "memories_synced", "deleted", "embedded", "unchanged", "errors", "seconds"]


@pytest.mark.parametrize("path", ["/sync", "/sync/", "/api/v1/sync", "/api/v1/sync/"])
async def test_a_sync_answers_its_statistics(client, path):
    answer = await client.post(path, params={"dry_run": True})
    assert (answer.status_code, list(answer.json())) == (200, ["status", "statistics"])
    assert answer.json()["status"] == "success"
    assert set(STATISTICS) <= set(answer.json()["statistics"])


async def test_a_sync_repairs_what_was_lost_from_the_index_of_one_user(client, new_user, remember, services):
    row = await remember(new_user, "one")
    await services.outbox_delivery.drain()

    await services.index.delete([UUID(row["id"])])
    counted = await client.post("/sync", params={"dry_run": True, "user_id": new_user})
    assert counted.json()["statistics"]["memories_synced"] == 1
    repaired = await client.post("/sync", params={"user_id": new_user})
    assert repaired.json()["statistics"]["memories_synced"] >= 1
    again = await client.post("/sync", params={"user_id": new_user})
    assert again.json()["statistics"]["memories_synced"] == 0


async def test_a_second_sync_is_told_that_one_is_running(client, services):
    async with services.database.statement() as tx:
        await tx.execute(select(func.pg_advisory_lock(LOCK)))
        try:
            answer = await client.post("/sync")
        finally:
            await tx.execute(select(func.pg_advisory_unlock(LOCK)))
    assert (answer.status_code, answer.json()["error"]) == (409, "sync_running")


async def test_a_sync_of_an_unknown_user_is_refused(client, new_user):
    answer = await client.post("/sync", params={"user_id": new_user})
    assert (answer.status_code, answer.json()["error"]) == (404, "user_not_found")


async def test_the_doctor_looks_at_everything(client):
    answer = await client.get("/api/v1/doctor")
    diagnosis = answer.json()
    assert answer.status_code == 200
    assert (diagnosis["status"] == "ok") is (diagnosis["problems"] == [])
    assert {"postgres", "index", "embedder"} <= set(diagnosis["checks"])
    assert {"memories", "users", "index_points"} <= set(diagnosis["counts"])
    assert diagnosis["sizes"]["database"] > 1_000_000  # an empty database has some megabytes


async def test_the_doctor_adds_up_the_files_of_the_built_in_index(services, tmp_path):
    (tmp_path / "inner").mkdir()
    (tmp_path / "a").write_bytes(b"x" * 100_000)
    (tmp_path / "inner" / "b").write_bytes(b"x" * 200_000)
    with (tmp_path / "reserved").open("wb") as file:
        file.truncate(50_000_000)
    for folder, sizes in ((tmp_path, {"index": 300_000}), (tmp_path / "none", {"index": 0}), (None, {})):
        health = Health(services.database, services.spaces, services.reconciler, "1", index_folder=folder)
        found = (await health.diagnose()).sizes
        assert found.pop("database") > 1_000_000
        assert found == pytest.approx(sizes, rel=0.1)  # whole blocks

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from sqlalchemy import func, select

from openmemory.identity.caller import Caller
from openmemory.index.entries import IndexEntry
from openmemory.index.models import ItemKind
from openmemory.index.port import Payload, Point
from openmemory.index.sync import outbox
from openmemory.index.sync.reconcile import LOCK, SyncRunning, SyncStatistics
from openmemory.index.sync.writer import Delivered
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services


async def sync(services: Services, **options: Any) -> SyncStatistics:
    """A sync, when the one that the application started on the same stores is over."""
    deadline = time.monotonic() + 30
    while True:
        try:
            return await services.reconciler.sync(**options)
        except SyncRunning:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)


async def entries(services: Services, caller: Caller) -> dict:
    return {entry.id: entry async for page in services.index.entries(caller.user_id) for entry in page}


async def some_memories(services: Services, caller: Caller, count: int = 5) -> list:
    added = await services.memories.add_many(caller, [MemoryCreate(text=f"fact number {n}") for n in range(count)])
    await services.outbox_delivery.drain()
    return [one.id for one in added]


@pytest.fixture
async def synced(services: Services, owner: Caller, deliver_all) -> list:
    await deliver_all()
    ids = await some_memories(services, owner)
    await sync(services, trigger="test", user=owner.user_id)
    return ids


async def test_nothing_changed_means_nothing_embedded_and_nothing_written(services, owner, synced):
    statistics = await sync(services, trigger="test", user=owner.user_id)
    assert (statistics.total_memories, statistics.unchanged) == (5, 5)
    assert (statistics.memories_synced, statistics.deleted, statistics.embedded, statistics.errors) == (0, 0, 0, 0)


async def test_lost_entries_come_back_without_embedding_again(services, owner, synced):
    await services.index.delete(synced[:3])
    statistics = await sync(services, trigger="test", user=owner.user_id)
    assert (statistics.memories_synced, statistics.embedded) == (3, 0)
    assert set(await entries(services, owner)) == set(synced)


async def test_entries_that_should_not_be_there_go(services, owner, synced):
    stray = stray_point(owner)
    await services.index.upsert([stray])
    statistics = await sync(services, trigger="test", user=owner.user_id)
    assert statistics.deleted == 1
    assert stray.id not in await entries(services, owner)


async def test_stale_revisions_are_written_anew(services, owner, synced):
    await services.memories.update(owner, synced[0], MemoryUpdate(text="a newer text"))
    await services.outbox_delivery.drain()
    stale = replace(stray_point(owner), id=synced[0], revision=1)
    await services.index.upsert([stale])
    statistics = await sync(services, trigger="test", user=owner.user_id)
    assert statistics.memories_synced == 1
    assert (await entries(services, owner))[synced[0]] == IndexEntry(synced[0], owner.user_id, 2)


async def test_a_dry_run_counts_and_changes_nothing(services, owner, synced):
    await services.index.delete(synced[:2])
    statistics = await sync(services, trigger="test", user=owner.user_id, dry_run=True)
    assert statistics.memories_synced == 2
    assert len(await entries(services, owner)) == 3


async def test_a_full_run_writes_everything_without_embedding(services, owner, synced):
    statistics = await sync(services, trigger="test", user=owner.user_id, full=True)
    assert (statistics.memories_synced, statistics.embedded) == (5, 0)


async def test_a_stray_entry_is_never_shown_even_before_a_sync(services, owner, synced):
    vector = (await services.embedder.query("ghost of a forgotten memory")).vector
    await services.index.upsert([replace(stray_point(owner), vectors=vector[np.newaxis])])
    answer = await services.search.search(owner, SearchQuery("ghost of a forgotten memory"))
    assert all("ghost" not in result.memory for result in answer.results)


async def test_two_runs_at_once_are_refused(services: Services, owner: Caller):
    async with services.database.statement() as tx:
        await tx.execute(select(func.pg_advisory_lock(LOCK)))
        try:
            with pytest.raises(SyncRunning):
                await services.reconciler.sync(trigger="test", user=owner.user_id)
        finally:
            await tx.execute(select(func.pg_advisory_unlock(LOCK)))
    await sync(services, trigger="test", user=owner.user_id)


async def test_a_dry_run_answers_while_another_run_holds_the_lock(services: Services, owner: Caller, synced):
    await services.index.delete(synced[:2])
    async with services.database.statement() as tx:
        await tx.execute(select(func.pg_advisory_lock(LOCK)))
        try:
            counted = await services.reconciler.sync(trigger="test", user=owner.user_id, dry_run=True)
        finally:
            await tx.execute(select(func.pg_advisory_unlock(LOCK)))
    assert (counted.total_memories, counted.unchanged, counted.memories_synced) == (5, 3, 2)


@pytest.mark.parametrize("user", [True, False])
async def test_a_sync_ends_although_the_outbox_is_filled_as_fast_as_it_is_emptied(
    services: Services, owner: Caller, synced, monkeypatch: pytest.MonkeyPatch, user: bool
):
    deliver = services.outbox_delivery._deliver

    async def refill() -> None:
        async with services.database.transaction() as tx:
            await outbox.add_entries(tx, ItemKind.MEMORY, synced)

    async def refilled(before: datetime | None) -> tuple[int, Delivered]:
        done = await deliver(before)
        await refill()
        return done

    await services.index.delete(synced)
    await refill()
    monkeypatch.setattr(services.outbox_delivery, "_deliver", refilled)
    async with asyncio.timeout(60):
        statistics = await sync(services, trigger="test", user=owner.user_id if user else None)
    assert statistics.errors == 0
    assert set(await entries(services, owner)) >= set(synced)


def stray_point(caller: Caller) -> Point:
    from datetime import UTC, datetime

    vectors = np.eye(1, 384, dtype=np.float32)
    now = datetime.now(UTC)
    return Point(
        id=uuid4(), vectors=vectors, user=caller.user_id, app=caller.app_id, namespace="default", kind="memory",
        revision=1, text_hash="0" * 32,
        document=Payload(text="stray", user_name=caller.user, created_at=now, updated_at=now),
    )  # fmt: skip

"""A sync while memories are written: what is new is left to the delivery, and what an index lost comes first."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from openmemory.index.models import ItemKind
from openmemory.index.port import Point
from openmemory.index.sync import outbox
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from tests.index.models import ann, filled, running
from tests.index.sync.test_races import due_now, held, marked


@pytest.mark.slow
@pytest.mark.parametrize("taken", ["", "by a process that died", "by one that failed", "and written again since"])
async def test_a_comparison_leaves_to_the_delivery_what_no_process_has_claimed_yet(folder: Path, taken: str) -> None:
    """What was claimed may have been written to a collection that is lost meanwhile."""
    ids = await filled(folder, 3)
    async with running(folder) as services:
        caller = await ann(services)
        await services.index.delete(ids)
        await services.memories.update(caller, ids[0], MemoryUpdate(text="tea, said anew"))
        await services.memories.add(caller, MemoryCreate(text="coffee"))
        async with services.database.transaction() as tx:
            claimed = await outbox.claim(tx, ItemKind.MEMORY, limit=10, lease=300) if taken else []
            if taken == "by one that failed":
                await outbox.postpone(tx, claimed, "not now")
            if taken == "and written again since":
                await outbox.add_entries(tx, ItemKind.MEMORY, [entry.id for entry in claimed])
        space = services.spaces.serving
        async with services.reconciler.run("test", space) as run:
            await services.reconciler.compare_space(space, run)
        assert (run.statistics.embedded, set(await held(services)) == set(ids[1:])) == (
            (2, False) if taken else (0, True)
        )
        await due_now(services)
        await services.outbox_delivery.drain()
        assert len(await held(services)) == 4
        assert await marked(services) == 0


async def test_what_an_incomplete_index_lacks_is_written_before_what_is_new(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = await filled(folder, 3)
    async with running(folder) as services:
        caller = await ann(services)
        await services.index.delete(ids)
        for n in range(4):
            await services.memories.add(caller, MemoryCreate(text=f"coffee {n}"))
        space, upsert, written = services.spaces.serving, services.index.upsert, []

        async def noted(points: Sequence[Point]) -> None:
            await upsert(points)
            written.append({point.id for point in points})

        monkeypatch.setattr(services.index, "upsert", noted)
        space.behind = "it was lost"
        await services.reconciler.sync(trigger="test")
        assert written == [set(ids)]
        assert await marked(services) == 4
        await services.outbox_delivery.drain()
        assert len(await held(services)) == 7

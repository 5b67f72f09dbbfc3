"""Changes the model: fills its collection beside the one in use, switches over, and removes the old one later."""

from __future__ import annotations

import logging
import time

from openmemory.database.engine import Database
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.index.generations import registry
from openmemory.index.generations.registry import Generation
from openmemory.index.generations.watcher import GenerationWatcher
from openmemory.index.models import GenerationState
from openmemory.index.port import IndexUnavailable, OwnedByAnother
from openmemory.index.space import Space
from openmemory.index.sync.reconcile import Reconciler, SyncRunning, alone
from openmemory.index.sync.runs import REBUILD, RunLog
from openmemory.index.tokens import VectorKey

log = logging.getLogger(__name__)

LOCK = 0x6F6D6270
"""The key of the advisory lock for the one replica that builds."""

ENOUGH = 100
"""The number of items that may differ in the last comparison before a collection takes over. That comparison repaired
them, and changes during it are delivered to both collections."""

PASSES = 10
"""The number of comparisons after which a collection takes over, no matter how much is written meanwhile."""

TOLERATED = 0.01
"""The share of the items that the new model may reject. They keep their outbox entries, and are found by their
words."""

FIRST_PAUSE, MAX_PAUSE = 15.0, 600.0
"""The seconds between two attempts if the new model does not answer. The pause doubles from the first to the last."""


class Rebuild:
    """Advances the generations step by step. Every step may be interrupted and continues where it stopped."""

    def __init__(self, database: Database, watcher: GenerationWatcher, reconciler: Reconciler, *, keep: float) -> None:
        self._database = database
        self._watcher = watcher
        self._reconciler = reconciler
        self._keep = keep
        self._pause = FIRST_PAUSE
        self._not_before = 0.0
        self._logged: set[str] = set()
        """Expired collections that could not be removed, which were already logged."""

    async def step(self) -> None:
        """Registers the configured model, follows the table, builds the new collection, and removes expired ones.

        Raises:
            Unavailable: PostgreSQL does not answer.
        """
        lease = self._watcher.monitor.lease
        if lease.foreign is not None and not lease.is_elsewhere:
            await self._leave(self._watcher.spaces.serving, lease.foreign)
        if lease.lost:
            return
        generations = await self._follow()
        if self._watcher.spaces.building is not None and time.monotonic() >= self._not_before:
            await self._build(self._watcher.spaces.building)
        if any(one.state is GenerationState.RETIRED for one in generations):
            await self._remove_expired()

    async def _follow(self) -> list[Generation]:
        try:
            if await self._watcher.want():
                self._pause, self._not_before = FIRST_PAUSE, 0.0
        except EmbedderUnavailable as error:
            log.debug("the configured model does not answer: %s", error)
        return await self._watcher.follow()

    async def _build(self, space: Space) -> None:
        try:
            async with alone(self._database, LOCK), self._reconciler.run(REBUILD, space) as run:
                if not await self._fill(space, run):
                    return
                await self._watcher.monitor.advance(space)
                await space.index.flush()
                async with self._database.transaction() as tx:
                    took_over = await registry.activate(tx, space.collection)
            self._pause = FIRST_PAUSE
            self._watcher.spaces.obstacle = None
        except SyncRunning:
            return
        except OwnedByAnother as refusal:
            if not await self._leave(space, refusal):
                self._wait(space, refusal)
            return
        except (IndexUnavailable, EmbedderUnavailable) as error:
            self._wait(space, error)
            return
        await self._watcher.follow()
        if took_over:
            await self._name(space)

    async def _leave(self, space: Space, refusal: OwnedByAnother) -> bool:
        """Has another collection built or used, if this one is another installation's. Returns False if it must stay
        as it is."""
        if not await self._watcher.leave(space, refusal):
            return False
        await self._follow()
        return True

    def _wait(self, space: Space, error: Exception) -> None:
        """Postpones the next attempt."""
        log.warning("rebuild of %s failed; next try in %.0f s: %s", space.collection, self._pause, error)
        self._watcher.spaces.obstacle = f"{space.model} is configured and its collection waits: {error}"
        self._not_before = time.monotonic() + self._pause
        self._pause = min(MAX_PAUSE, 2 * self._pause)

    async def _fill(self, space: Space, run: RunLog) -> bool:
        """Compares and repairs until little differs. Returns False if the collection is not the target any more."""
        for number in range(PASSES):
            missed, errors = space.missed, run.statistics.errors
            run.statistics.total_memories = run.statistics.unchanged = 0
            different = await self._reconciler.compare_space(space, run)
            refused = run.statistics.errors - errors
            log.info("%s: pass %d wrote %d items, %d refused", space.collection, number + 1, different, refused)
            if refused > TOLERATED * max(run.statistics.total_memories, ENOUGH):
                raise EmbedderUnavailable(f"the model refused {refused} of {run.statistics.total_memories} texts")
            if different <= ENOUGH + refused and missed == space.missed:
                break
            await self._follow()
            if self._watcher.spaces.building is not space:
                return False
        return True

    async def _name(self, space: Space) -> None:
        try:
            await space.index.activate()
        except IndexUnavailable as error:
            log.warning("the alias still names the old collection; the next sync moves it: %s", error)

    async def _remove_expired(self) -> None:
        async with self._database.statement() as tx:
            over = await registry.expired(tx, self._keep)
        for generation in over:
            await self._remove(generation)

    async def _remove(self, generation: Generation) -> None:
        """Removes a retired collection and its vectors. If interrupted, the next step starts over."""
        spaces = self._watcher.spaces
        space = next((one for one in spaces.retired if one.collection == generation.collection), None)
        if space is None:
            return
        at: VectorKey | None = VectorKey()
        while at is not None:
            async with self._database.transaction() as tx:
                at = await registry.forget_vectors(tx, generation, at)
        try:
            await self._name(spaces.serving)
            async with self._database.transaction() as tx:
                # Under this lock, no other process can reactivate it meanwhile.
                if not await registry.locked(tx, generation.collection):
                    return
                self._watcher.forget(space)
                try:
                    await space.index.drop()
                    await registry.forget(tx, generation.collection)
                finally:
                    await self._watcher.release(space)
        except OwnedByAnother as refusal:
            log.info("%s is forgotten and not removed: %s", generation.collection, refusal)
            async with self._database.transaction() as tx:
                await registry.forget(tx, generation.collection)
            return
        except IndexUnavailable as error:
            if generation.collection not in self._logged:
                self._logged.add(generation.collection)
                log.warning("the old collection %s stays until it can be removed: %s", generation.collection, error)
            return
        self._logged.discard(generation.collection)
        log.info("the old collection %s and its vectors are removed", generation.collection)

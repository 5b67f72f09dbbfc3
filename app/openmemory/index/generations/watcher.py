"""Keeps the spaces of this process in line with the generations in PostgreSQL."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from openmemory.database.engine import Database, Tx
from openmemory.embeddings.cache import CachedEmbedder
from openmemory.embeddings.opening import UnusableEmbedder
from openmemory.embeddings.port import EmbedderUnavailable
from openmemory.errors import OpenMemoryError
from openmemory.index.collections import collection_name
from openmemory.index.generations import registry
from openmemory.index.generations.registry import Generation
from openmemory.index.lazy import LazyIndex
from openmemory.index.lease import Lease
from openmemory.index.models import GenerationState
from openmemory.index.monitor import IndexMonitor
from openmemory.index.ownership import Ownership
from openmemory.index.port import (
    Accept,
    CollectionState,
    Connected,
    IndexUnavailable,
    OwnedByAnother,
    Owner,
    VectorIndex,
    Watermark,
)
from openmemory.index.space import Deadlines, Space, Spaces

log = logging.getLogger(__name__)


class ConfiguredEmbedder(NamedTuple):
    """The embedder that should be used, and its settings without secrets."""

    embedder: CachedEmbedder
    recorded: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SpaceParts:
    """The configured components of spaces.

    `alias` begins the names of new collections. `own_name`: another one may be taken if that is another
    installation's. `beats`: see `Ownership`. `target` is the initial embedder. `configured` returns another one
    after the configuration changed. `embedder` opens one from its recorded settings. `index` creates the index of a
    collection, given its alias, name and dimension, without opening it. The index calls its last two arguments whenever
    it has connected.
    """

    alias: str
    own_name: bool
    target: ConfiguredEmbedder
    configured: Callable[[], Awaitable[ConfiguredEmbedder | None]]
    embedder: Callable[[dict[str, Any]], CachedEmbedder]
    index: Callable[[str, str, int, Accept, Connected], VectorIndex]
    deadlines: Deadlines
    lease: Lease
    beats: bool


class GenerationWatcher:
    """Owns the spaces: opens those in the table, and closes those that are no longer in it."""

    def __init__(self, database: Database, parts: SpaceParts) -> None:
        self._database = database
        self._parts = parts
        self._target = parts.target
        self._alias = parts.alias
        self._registered = False
        self.ownership = Ownership(database, beats=parts.beats)
        self.monitor = IndexMonitor(database, parts.lease, on_behind=self._on_recovery)
        self.spaces = Spaces(self._first())

    async def follow(self) -> list[Generation]:
        """Reads the table and updates `spaces` accordingly; returns the generations."""
        async with self._database.statement() as tx:
            generations = await registry.everyone(tx)
            await self._read_alias(tx)
        spaces = self.spaces
        by_collection = {space.collection: space for space in self._all() if space.collection}
        serving, building = spaces.serving, None
        retired: list[Space] = []
        for generation in generations:
            space = by_collection.pop(generation.collection, None) or self._space(generation)
            if generation.state is GenerationState.ACTIVE:
                serving = space
            elif generation.state is GenerationState.RETIRED:
                retired.append(space)
            elif building is None:
                building = space
        before = spaces.serving
        spaces.serving, spaces.building, spaces.retired = serving, building, retired
        if before is not serving:
            log.info("searches use %s now", serving.collection)
            self._parts.lease.foreign = None
            if before is not building and before not in retired:
                by_collection[before.collection] = before
            # A replica that did not know this collection yet may have delivered to the old one only.
            spaces.recovered()
        for space in by_collection.values():
            if space is not serving:
                await self.release(space)
        return generations

    async def want(self) -> bool:
        """Registers the configured model in the table; it takes over when it is complete. Returns True if the model
        changed.

        Nothing changes until its dimension is known, so that an unusable model does not affect the one in use.
        `spaces.obstacle` contains the problem.

        Raises:
            EmbedderUnavailable: its dimension is not known, and it does not answer.
            Unavailable: PostgreSQL does not answer.
        """
        another = await self._parts.configured()
        if another is not None:
            await self._prefer(another)
        if not self._registered:
            try:
                generation = await self._register()
            except EmbedderUnavailable as error:
                self.spaces.obstacle = f"{self._target.embedder.model} is configured and cannot be used: {error}"
                raise
            if generation.state is GenerationState.BUILDING:
                same = self.spaces.serving.model == self._target.embedder.model
                why = "the collection has a new name" if same else "another model is configured"
                log.warning(
                    "building collection %s (%s); searches use the current one until it is complete",
                    generation.collection,
                    why,
                )
        return another is not None

    async def leave(self, space: Space, refusal: OwnedByAnother) -> bool:
        """Leaves a collection to the installation that it belongs to, and takes a name of its own for this one.

        Returns False if that is not to be done: the name was configured, or somebody has to say whether the database
        was copied.
        """
        if refusal.asked or not self._parts.own_name or not space.collection:
            return False
        async with self._database.transaction() as tx:
            own = await registry.leave(tx, space.collection, self._parts.alias)
        self._registered = False
        if own is not None:
            log.warning("%s; this installation uses the name %s instead", refusal, own)
        return own is not None

    async def _read_alias(self, tx: Tx) -> None:
        own = await registry.own_name(tx) if self._parts.own_name else None
        self._alias = own or self._parts.alias

    async def _prefer(self, another: ConfiguredEmbedder) -> None:
        before, self._target, self._registered = self._target, another, False
        self.spaces.obstacle = None
        first = self.spaces.serving
        if not first.collection:  # no collection is in use yet, and the initial model is no longer wanted
            self.spaces.serving = self._first()
            await first.close()
        await self._close_unused(before.embedder)

    def forget(self, space: Space) -> None:
        """Forgets a retired space. If the table still contains one of this name, it is a different one."""
        self.spaces.retired = [one for one in self.spaces.retired if one is not space]

    async def close(self) -> None:
        """Closes every index and every model."""
        spaces = self._all()
        for space in spaces:
            await space.close()
        for embedder in {
            id(one): one for one in (*(space.embedder for space in spaces), self._target.embedder)
        }.values():
            await embedder.close()

    def _all(self) -> list[Space]:
        building = [self.spaces.building] if self.spaces.building is not None else []
        return [self.spaces.serving, *building, *self.spaces.retired]

    async def release(self, space: Space) -> None:
        """Closes a space that is no longer used."""
        await space.close()
        await self._close_unused(space.embedder, but=space)

    async def _close_unused(self, embedder: CachedEmbedder, *, but: Space | None = None) -> None:
        used = (space.embedder for space in self._all() if space is not but)
        if not any(embedder is one for one in (*used, self._target.embedder)):
            await embedder.close()

    async def _register(self) -> Generation:
        target = self._target
        dimension = await target.embedder.dimension()
        async with self._database.transaction() as tx:
            await self._read_alias(tx)
            collection = collection_name(self._alias, target.embedder.model, dimension)
            generation = await registry.want(tx, collection, target.embedder.model, dimension, target.recorded)
        self._registered, self.spaces.obstacle = True, None
        # If only the settings changed (a new key, another address), the model continues with its collection.
        for space in self._all():
            if space.collection == collection and space.embedder is not target.embedder:
                before, space.embedder = space.embedder, target.embedder
                await self._close_unused(before)
        return generation

    def _first(self) -> Space:
        """The space until the table is read, or for the very first start, which has to get the dimension from the
        model."""

        async def opening() -> VectorIndex:
            try:
                generation = await self._register()
            except EmbedderUnavailable as error:
                raise IndexUnavailable(f"the model's dimension is not known yet: {error}") from error
            if generation.state is not GenerationState.ACTIVE:
                raise IndexUnavailable("another model is in use")
            space.collection = generation.collection
            return await self._open_index(space, generation.dimension)

        space = Space(
            self._target.embedder,
            LazyIndex(opening),
            self._parts.deadlines,
            on_recovery=self._on_recovery,
            lease=self._parts.lease,
        )
        return space

    def _space(self, generation: Generation) -> Space:
        space = Space(
            self._embedder(generation),
            LazyIndex(lambda: self._open_index(space, generation.dimension)),
            self._parts.deadlines,
            collection=generation.collection,
            dimension=generation.dimension,
            on_recovery=self._on_recovery,
            lease=self._parts.lease,
        )
        return space

    async def _open_index(self, space: Space, dimension: int) -> VectorIndex:
        async def connected(watermark: Watermark | None) -> Watermark | None:
            return await self.monitor.connected(space, watermark) if space is self.spaces.serving else None

        async def accept(state: CollectionState) -> Owner:
            lease = self._parts.lease
            try:
                owner = await self.ownership.accept(space.collection, state)
            except OwnedByAnother as refusal:
                if space is self.spaces.serving:
                    if lease.foreign is None:
                        log.error("%s; searches find by words alone, and nothing is delivered", refusal)
                    lease.foreign = refusal
                raise
            if space is self.spaces.serving and lease.foreign is not None:
                log.warning("%s is this installation's again", space.collection)
                lease.foreign = None
                self._on_recovery()
            return owner

        index = self._parts.index(self._alias, space.collection, dimension, accept, connected)
        try:
            await index.open()
        except BaseException:
            await index.close()
            raise
        return index

    def _on_recovery(self) -> None:
        self.spaces.recovered()

    def _embedder(self, generation: Generation) -> CachedEmbedder:
        if generation.model == self._target.embedder.model:
            return self._target.embedder
        try:
            embedder = self._parts.embedder(generation.embedder)
        except (OpenMemoryError, ValueError, TypeError) as error:
            return CachedEmbedder(UnusableEmbedder(generation.model, f"its settings are of no use any more: {error}"))
        if embedder.model != generation.model:
            return CachedEmbedder(UnusableEmbedder(generation.model, f"{embedder.model} has taken its place"))
        return embedder

"""Random histories in which the model is changed again and again, and everything may be cut off at any moment.

Whatever was cut off, searches answer and show only what is there. When all is quiet the collection in use is that of
the configured model, holds just the active memories, and the vector of each is that model's of its newest text.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, TypeVar
from uuid import UUID, uuid4

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from sqlalchemy import text

from app.access.caller import Caller
from app.config import Settings
from app.index import marks
from app.index.port import Filter
from app.index.reconcile import SyncRunning
from app.memories.schemas import MemoryCreate, MemoryUpdate
from app.search.schemas import SearchQuery
from app.services import INDEX_FOLDER, Services, Stores, open_services, open_stores
from tests.clusters import furnish
from tests.faults.embedding_server import EmbeddingServer
from tests.faults.histories import live

HISTORIES = int(os.environ.get("OPENMEMORY_TEST_HISTORIES", "6"))
"""Histories of the long run; asked for by number, they are new ones each time, and one that fails is made short."""

MODELS = {"one": 24, "two": 16, "three": 24}
"""Models and the sizes of their vectors: two differ in nothing but what they mean."""

FAULTS = ("changes", "restarts", "cut off", "losses", "outages", "settled")
T = TypeVar("T")
_numbers = count(1)


class Installation:
    """Stores that stay, and services over them that come and go, each time with a model that may be another."""

    def __init__(self, folder: Path) -> None:
        self.folder = furnish(folder)
        self.servers = {model: EmbeddingServer(dimension, model) for model, dimension in MODELS.items()}
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="installation")
        self._thread.start()
        self._open = AsyncExitStack()
        self._stores: Stores | None = None
        self._everything = AsyncExitStack()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Do it and wait for it, a minute at most."""
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(60)

    async def start(self) -> None:
        opened = await self._everything.enter_async_context(open_stores(self._settings("one", 3600)))
        self._stores = opened.stores

    async def open(self, model: str, keep: int) -> Services:
        """End the services there are, and open others; what a start does with claims of the dead is done."""
        await self.close()
        services = await self._open.enter_async_context(open_services(self._settings(model, keep), stores=self._stores))
        await services.deliverer.stop()
        async with services.database.transaction() as tx:
            await marks.end_leases(tx)
        return services

    async def close(self) -> None:
        await self._open.aclose()

    def end(self) -> None:
        """Remove everything."""
        try:
            self.run(self.close())
            self.run(self._everything.aclose())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(60)
            self.loop.close()
            for server in self.servers.values():
                server.close()

    def _settings(self, model: str, keep: int) -> Settings:
        embedder = {
            "provider": "openai", "model": model, "base_url": f"http://127.0.0.1:{self.servers[model].port}/v1",
            "api_key": "k", "timeout": 5,
        }  # fmt: skip
        return Settings.model_validate(
            {"data_dir": str(self.folder), "port": 0, "embedder": embedder, "sync": {"keep": keep}}
        )


async def cut_off(work: Coroutine[Any, Any, object], turns: int) -> bool:
    """Begin something, and cancel it when the event loop has gone round so many times; whether that was in time."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0.0005 if turns > 40 else 0)
    cancelled = task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SyncRunning):
        raise error
    return cancelled


class Changes(RuleBasedStateMachine):
    """One user's memories under models that change."""

    place: ClassVar[Installation]
    done: ClassVar[Counter[str]]

    @initialize()
    def begin(self) -> None:
        self.services: Services = self.place.run(self.place.open("one", 3600))
        self.model, self.keep = "one", 3600
        self.texts: dict[UUID, str] = {}
        self.caller: Caller = self.place.run(self._somebody())
        for _ in range(3):
            self.add("otter")

    async def _somebody(self) -> Caller:
        return await self.services.directory.caller(f"user-{uuid4().hex[:8]}", None, owner=True)

    def _fact(self, word: str) -> str:
        return f"{word} fact number{next(_numbers)}"

    @rule(word=st.sampled_from(("lemon", "violin", "glacier")))
    def add(self, word: str) -> None:
        said = self._fact(word)
        [added] = self.place.run(self.services.memories.add_many(self.caller, [MemoryCreate(text=said)]))
        self.texts[added.id] = said

    @precondition(lambda self: self.texts)
    @rule(choice=st.integers(0, 1000))
    def rewrite(self, choice: int) -> None:
        id_ = sorted(self.texts)[choice % len(self.texts)]
        said = self._fact("rewritten")
        self.place.run(self.services.memories.update(self.caller, id_, MemoryUpdate(text=said)))
        self.texts[id_] = said

    @precondition(lambda self: len(self.texts) > 1)
    @rule(choice=st.integers(0, 1000), erased=st.booleans())
    def remove(self, choice: int, erased: bool) -> None:
        id_ = sorted(self.texts)[choice % len(self.texts)]
        memories = self.services.memories
        self.place.run((memories.erase if erased else memories.delete)(self.caller, [id_]))
        del self.texts[id_]

    @rule(model=st.sampled_from(sorted(MODELS)), keep=st.sampled_from((0, 3600)), turns=st.integers(0, 200))
    def configure(self, model: str, keep: int, turns: int) -> None:
        """Start again with a model, and cut off its first step."""
        self.done["changes" if model != self.model else "restarts"] += 1
        self.model, self.keep = model, keep
        self.services = self.place.run(self.place.open(model, keep))
        self.step(turns)

    @rule(which=st.integers(0, 10))
    def lose_a_collection(self, which: int) -> None:
        """Its folder is gone while nobody looks."""
        self.place.run(self.place.close())
        found = sorted(one for one in (self.place.folder / INDEX_FOLDER).iterdir() if one.is_dir())
        if found:
            shutil.rmtree(found[which % len(found)])
            self.done["losses"] += 1
        self.services = self.place.run(self.place.open(self.model, self.keep))

    @rule(model=st.sampled_from(sorted(MODELS)), away=st.booleans())
    def embedder_away(self, model: str, away: bool) -> None:
        self.place.servers[model].away = away
        self.done["outages"] += away

    @rule(turns=st.integers(0, 200))
    def step(self, turns: int) -> None:
        self.services.rebuild._not_before = 0
        self.done["cut off"] += self.place.run(cut_off(self.services.rebuild.step(), turns))

    @rule(turns=st.integers(0, 120))
    def deliver(self, turns: int) -> None:
        self.done["cut off"] += self.place.run(cut_off(self.services.deliverer.drain(), turns))

    @rule()
    def whole_step(self) -> None:
        self.services.rebuild._not_before = 0
        self.place.run(self.services.rebuild.step())

    @rule(rarely=st.integers(0, 3))
    def settle_sometimes(self, rarely: int) -> None:
        if not rarely:
            self.settle()

    def settle(self) -> None:
        """Everything answers, and nothing is cut off."""
        for server in self.place.servers.values():
            server.away = False
        self.services = self.place.run(self.place.open(self.model, self.keep))
        self.place.run(self._all_quiet())
        self.done["settled"] += 1

    async def _all_quiet(self) -> None:
        services = self.services
        for _ in range(2):
            async with services.database.transaction() as tx:
                await tx.execute(text("UPDATE index_marks SET due_at = now(), attempts = 0"))
            await services.deliverer.drain()
            await services.rebuild.step()
            await services.reconciler.sync(trigger="test")
        serving = services.spaces.serving
        assert (serving.model, services.spaces.building) == (f"openai/{self.model}", None)
        entries = {entry.id async for page in services.index.entries(self.caller.user_id) for entry in page}
        assert entries == set(self.texts)
        for id_, said in self.texts.items():
            vector = self.place.servers[self.model].vector(said)
            [best] = await services.index.search(vector, Filter(self.caller.user_id), 1)
            assert (best.id, best.score) == (id_, pytest.approx(1, abs=1e-3))
        async with services.database.statement() as tx:
            assert not (await tx.execute(_LEFT_BEHIND)).all()
            known = set(await tx.scalars(text("SELECT model FROM index_generations")))
        if self.keep == 0:
            assert known == {serving.model}

    @invariant()
    def searches_answer(self) -> None:
        if not hasattr(self, "texts"):
            return
        self.done["steps"] += 1
        id_ = sorted(self.texts)[self.done["steps"] % len(self.texts)]
        said = self.texts[id_]
        answer = self.place.run(self.services.search.search(self.caller, SearchQuery(said, limit=100)))
        shown = {result.id: result.memory for result in answer.results}
        assert shown.items() <= self.texts.items()
        assert shown[id_] == said

    def teardown(self) -> None:
        if hasattr(self, "texts"):
            self.settle()
        self.done["histories"] += 1


_LEFT_BEHIND = text(
    """
    SELECT e.id, e.model FROM embeddings AS e
    WHERE NOT EXISTS (SELECT FROM memories AS m WHERE m.id = e.id)
        OR NOT EXISTS (SELECT FROM index_generations AS g WHERE g.model = e.model)
    """
)


@pytest.fixture
def done(short_folder: Path) -> Iterator[Counter[str]]:
    """The installation of the histories, and a count of what happened in it."""
    place = Installation(short_folder / "changes")
    try:
        place.run(place.start())
        Changes.place, Changes.done = place, Counter()
        yield Changes.done
    finally:
        place.end()


@pytest.mark.timeout(120)
def test_some_changes_of_the_model_leave_nothing_wrong(done: Counter[str]) -> None:
    live(Changes, 3, 15, random=False)
    assert done["steps"] >= 25


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_many_changes_of_the_model_leave_nothing_wrong(done: Counter[str]) -> None:
    live(Changes, HISTORIES, 40, random="OPENMEMORY_TEST_HISTORIES" in os.environ)
    print(f"\n{', '.join(f'{number} {what}' for what, number in done.items())}; 0 violations")
    assert all(done[what] for what in FAULTS)

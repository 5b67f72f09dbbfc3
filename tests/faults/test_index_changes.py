"""Random histories in which the model and the collection's name change, and everything may be cut off at any moment.

Whatever was cut off, searches answer and show only what is there. When all is quiet the collection in use is that of
the configured name and model. It holds the active memories alone, each with its model's vector of the newest text. No
collection holds an erased memory, and the store has no collection that PostgreSQL does not know.
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

import httpx
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

from openmemory.config.settings import Settings
from openmemory.doors.server.hosting import hosted_index
from openmemory.identity.caller import Caller
from openmemory.index.collections import collection_name
from openmemory.index.engine.index import EdgeIndex
from openmemory.index.engine.rest_api import QdrantRestApi
from openmemory.index.port import Filter
from openmemory.index.sync import outbox
from openmemory.index.sync.reconcile import SyncRunning
from openmemory.index.unix_socket import unix_socket_transport
from openmemory.memories.schemas import MemoryCreate, MemoryUpdate
from openmemory.search.schemas import SearchQuery
from openmemory.services import Services, open_services
from openmemory.stores import INDEX_FOLDER, Stores, open_stores
from tests.clusters import furnish
from tests.faults.embedding_server import EmbeddingServer
from tests.faults.histories import live
from tests.index.serving import served

HISTORIES = int(os.environ.get("OPENMEMORY_TEST_HISTORIES", "8"))
"""Histories of the long run; asked for by number, they are new ones each time, and one that fails is made short."""

MODELS = {"one": 24, "two": 16, "three": 24}
"""Models and the sizes of their vectors: two differ in nothing but what they mean."""

NAMES = ("memories", "notes")
"""Values of `qdrant.collection`."""

ENGINES = ("built in", "socket", "server")
"""The built-in index, the same served to workers on a unix socket, and a Qdrant server: the one that
`OPENMEMORY_TEST_QDRANT_URL` names, else our own front."""

FAULTS = ("models changed", "names changed", "restarts", "cut off", "losses", "outages", "settled")
T = TypeVar("T")
_numbers = count(1)


class Installation:
    """Stores that stay, and services over them that come and go, with another model or collection each time."""

    def __init__(self, folder: Path, engine: str) -> None:
        self.folder = furnish(folder)
        self.prefix = f"test-{uuid4().hex[:8]}-"
        self._engine = engine
        self._url = ""
        self._qdrant: httpx.AsyncClient | None = None
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
        enter = self._everything.enter_async_context
        stores = (await enter(open_stores(self._settings("one", NAMES[0], 3600)))).stores
        if self._engine == "socket":
            stores = await enter(hosted_index(stores))
            transport = unix_socket_transport(stores.index_socket)
            self._qdrant = await enter(httpx.AsyncClient(base_url="http://index", transport=transport))
        elif self._engine == "server":
            url = os.environ.get("OPENMEMORY_TEST_QDRANT_URL")
            self._url = url or await enter(served(QdrantRestApi(self.folder / "server")))
            # A connection that was kept may be closed just when it is used again.
            limits = httpx.Limits(max_keepalive_connections=0)
            self._qdrant = await enter(httpx.AsyncClient(base_url=self._url, limits=limits))
        self._stores = stores

    async def open(self, model: str, name: str, keep: int) -> Services:
        """End the services there are, and open others; what a start does with claims of the dead is done."""
        await self.close()
        settings = self._settings(model, name, keep)
        services = await self._open.enter_async_context(open_services(settings, stores=self._stores))
        await services.outbox_delivery.stop()
        async with services.database.transaction() as tx:
            await outbox.end_leases(tx)
        return services

    async def close(self) -> None:
        await self._open.aclose()

    async def stored(self) -> dict[str, set[UUID]]:
        """The memories that each collection of the store holds, read past the product. No services may be open."""
        return {name: await self._ids(name) for name in await self._collections()}

    async def lose(self, number: int) -> bool:
        """Remove one collection of the store, if there is one. No services may be open."""
        found = await self._collections()
        if not found:
            return False
        name = found[number % len(found)]
        if self._qdrant is None:
            shutil.rmtree(self.folder / INDEX_FOLDER / name)
        else:
            (await self._qdrant.delete(f"/collections/{name}")).raise_for_status()
        return True

    async def _collections(self) -> list[str]:
        if self._qdrant is None:
            return sorted(one.name for one in (self.folder / INDEX_FOLDER).iterdir() if one.is_dir())
        answer = (await self._qdrant.get("/collections")).raise_for_status().json()["result"]["collections"]
        return sorted(one["name"] for one in answer if one["name"].startswith(self.prefix))

    async def _ids(self, name: str) -> set[UUID]:
        if self._qdrant is None:
            index = EdgeIndex(self.folder / INDEX_FOLDER, collection=name, dimension=int(name.split("__")[2]))
            found = {entry.id async for page in index.entries() for entry in page}
            await index.close()
            return found
        asked = {"limit": 10_000, "with_payload": False}
        answer = (await self._qdrant.post(f"/collections/{name}/points/scroll", json=asked)).raise_for_status()
        return {UUID(point["id"]) for point in answer.json()["result"]["points"] if isinstance(point["id"], str)}

    async def named_by(self, alias: str) -> str | None:
        """The collection that an alias of the store names."""
        if self._qdrant is None:
            return (self.folder / INDEX_FOLDER / "current").read_text(encoding="utf-8").strip()
        found = (await self._qdrant.get("/aliases")).raise_for_status().json()["result"]["aliases"]
        return next((one["collection_name"] for one in found if one["alias_name"] == alias), None)

    def end(self) -> None:
        """Remove everything."""
        try:
            self.run(self.close())
            while self.run(self.lose(0)):
                pass
            self.run(self._everything.aclose())
        finally:
            self.loop.call_soon_threadsafe(self.loop.stop)
            self._thread.join(60)
            self.loop.close()
            for server in self.servers.values():
                server.close()

    def alias(self, name: str) -> str:
        """The value of `qdrant.collection` that a name of the histories stands for."""
        return self.prefix + name

    def _settings(self, model: str, name: str, keep: int) -> Settings:
        embedder = {
            "provider": "openai", "model": model, "base_url": f"http://127.0.0.1:{self.servers[model].port}/v1",
            "api_key": "k", "timeout": 5,
        }  # fmt: skip
        # Nothing is delivered while a search waits for it: it looks once, and goes on.
        return Settings.model_validate({
            "data_dir": str(self.folder), "port": 0, "embedder": embedder, "sync": {"keep": keep},
            "qdrant": {"collection": self.alias(name), "url": self._url}, "search": {"write_wait": 0.03},
        })  # fmt: skip


async def cut_off(work: Coroutine[Any, Any, object], turns: int) -> bool:
    """Begin something, and cancel it when the event loop has gone round so many times; whether that was in time."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0.0005 if turns > 40 else 0)
    cancelled = task.cancel()
    await asyncio.wait([task])
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, SyncRunning):
        raise error
    return cancelled


class Changes(RuleBasedStateMachine):
    """One user's memories under models and names that change."""

    place: ClassVar[Installation]
    done: ClassVar[Counter[str]]

    @initialize()
    def begin(self) -> None:
        self.model, self.name, self.keep = "one", NAMES[0], 3600
        self.services: Services = self._opened()
        self.texts: dict[UUID, str] = {}
        self.caller: Caller = self.place.run(self._somebody())
        for _ in range(3):
            self.add("otter")

    def _opened(self) -> Services:
        return self.place.run(self.place.open(self.model, self.name, self.keep))

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

    @rule(
        further=st.integers(1, len(MODELS) - 1),
        keep=st.sampled_from((0, 3600)),
        turns=st.integers(0, 200),
        away=st.booleans(),
    )
    def change_model(self, further: int, keep: int, turns: int, away: bool) -> None:
        """Start again with another model, whose embedder may be away, and cut off the first step."""
        models = sorted(MODELS)
        self.model, self.keep = models[(models.index(self.model) + further) % len(models)], keep
        self.place.servers[self.model].away = away
        self.done["outages"] += away
        self.done["models changed"] += 1
        self.start_again(turns)

    @rule(keep=st.sampled_from((0, 3600)), turns=st.integers(0, 200))
    def rename(self, keep: int, turns: int) -> None:
        """Start again with the other name, and cut off the first step."""
        self.name, self.keep = NAMES[1 - NAMES.index(self.name)], keep
        self.done["names changed"] += 1
        self.start_again(turns)

    @rule(turns=st.integers(0, 200))
    def start_again(self, turns: int) -> None:
        self.done["restarts"] += 1
        self.services = self._opened()
        self.step(turns)

    @rule(which=st.integers(0, 10))
    def lose_a_collection(self, which: int) -> None:
        """It is removed while nobody looks."""
        self.place.run(self.place.close())
        self.done["losses"] += self.place.run(self.place.lose(which))
        self.services = self._opened()

    @rule(model=st.sampled_from(sorted(MODELS)))
    def embedder_goes_or_comes(self, model: str) -> None:
        server = self.place.servers[model]
        server.away = not server.away
        self.done["outages"] += server.away

    @rule(turns=st.integers(0, 200))
    def step(self, turns: int) -> None:
        self.services.rebuild._not_before = 0
        self.done["cut off"] += self.place.run(cut_off(self.services.rebuild.step(), turns))

    @rule(turns=st.integers(0, 120))
    def deliver(self, turns: int) -> None:
        self.done["cut off"] += self.place.run(cut_off(self.services.outbox_delivery.drain(), turns))

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
        self.services = self._opened()
        self.place.run(self._all_quiet())
        generations = self.place.run(self._column("SELECT collection FROM index_generations"))
        active = self.place.run(self._column("SELECT id FROM memories WHERE state = 'active'"))
        self.place.run(self.place.close())
        stored = self.place.run(self.place.stored())
        assert set(stored) == generations
        for name, ids in stored.items():
            assert ids <= active, f"{name} holds memories that are gone"
        self.services = self._opened()
        self.done["settled"] += 1

    async def _column(self, query: str) -> set[Any]:
        async with self.services.database.statement() as tx:
            return set(await tx.scalars(text(query)))

    async def _all_quiet(self) -> None:
        services = self.services
        for _ in range(2):
            async with services.database.transaction() as tx:
                await tx.execute(text("UPDATE index_outbox SET due_at = now(), attempts = 0"))
            await services.outbox_delivery.drain()
            await services.rebuild.step()
            await services.reconciler.sync(trigger="test")
        serving = services.spaces.serving
        alias = self.place.alias(self.name)
        wanted = collection_name(alias, f"openai/{self.model}", MODELS[self.model])
        assert (serving.collection, services.spaces.building) == (wanted, None)
        assert await self.place.named_by(alias) == wanted
        entries = {entry.id async for page in services.index.entries(self.caller.user_id) for entry in page}
        assert entries == set(self.texts)
        for id_, said in self.texts.items():
            vector = self.place.servers[self.model].vector(said)
            [best] = await services.index.search(vector, Filter(self.caller.user_id), 1)
            assert (best.id, best.score) == (id_, pytest.approx(1, abs=1e-3))
        async with services.database.statement() as tx:
            assert not (await tx.execute(_LEFT_BEHIND)).all()
        if self.keep == 0:
            assert await self._column("SELECT collection FROM index_generations") == {serving.collection}

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
def done(short_folder: Path, request: pytest.FixtureRequest) -> Iterator[Counter[str]]:
    """The installation of the histories, on the engine that the test names, and a count of what happened in it."""
    place = Installation(short_folder / f"changes-{uuid4().hex[:8]}", request.getfixturevalue("engine"))
    try:
        place.run(place.start())
        Changes.place, Changes.done = place, Counter()
        yield Changes.done
    finally:
        place.end()


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("engine", ENGINES)
def test_some_changes_of_model_and_name_leave_nothing_wrong(done: Counter[str], engine: str) -> None:
    live(Changes, 2, 15, random=False)
    assert done["steps"] >= 15


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("engine", ENGINES)
def test_many_changes_of_model_and_name_leave_nothing_wrong(done: Counter[str], engine: str) -> None:
    live(Changes, HISTORIES, 40, random="OPENMEMORY_TEST_HISTORIES" in os.environ)
    print(f"\n{engine}: {', '.join(f'{number} {what}' for what, number in done.items())}; 0 violations")
    assert [what for what in FAULTS if not done[what]] == []
